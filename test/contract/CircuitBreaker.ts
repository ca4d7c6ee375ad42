import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, type Layer, Logger } from "effect"
import { TestClock } from "effect/testing"
import { describe } from "vitest"
import { CircuitBreaker } from "../../src/backend/CircuitBreaker.ts"
import { jsonLine } from "../../src/observability/logging.ts"
import { BackendFailed, type CircuitOpen } from "../../src/domain/Errors.ts"

const broken = new BackendFailed({ fault: "unreachable" })
const busy = new BackendFailed({ fault: "busy" })
const said = (error: BackendFailed | CircuitOpen): string =>
  error._tag === "CircuitOpen" ? `open ${error.retryAfterS}` : error.fault
const counts = (error: BackendFailed): boolean => error.fault !== "busy"

/** "tenant/key"; a name alone is a tenant with one key. */
const partyOf = (name: string) => ({ keyId: name, tenantId: name.split("/")[0] ?? name })

const head = <A>(effect: Effect.Effect<A, BackendFailed>, key = "key") =>
  Effect.flatMap(CircuitBreaker, (breaker) => breaker.guard(partyOf(key), effect, counts))
const failOf = (key: string) => Effect.map(Effect.flip(head(Effect.fail(broken), key)), said)
const okOf = (key: string) => head(Effect.succeed("frame"), key)
const fail = failOf("key")
const ok = okOf("key")
const refusedOf = <A>(call: Effect.Effect<A, BackendFailed | CircuitOpen, CircuitBreaker>) =>
  Effect.map(Effect.flip(call), said)
const state = Effect.flatMap(CircuitBreaker, (breaker) => breaker.state)
const times = <A, E, R>(n: number, effect: Effect.Effect<A, E, R>) => Effect.replicateEffect(effect, n)

/** The layer under test opens after 5 failures, for 30 s. */
export const suite = (name: string, layer: Layer.Layer<CircuitBreaker>): void => {
  describe(`CircuitBreaker: ${name}`, () => {
    it.effect(
      "when five calls fail in a row, then it opens and refuses without calling, with the time to wait",
      () =>
        Effect.gen(function* () {
          yield* times(4, fail)
          assert.strictEqual(yield* state, "closed")
          yield* fail
          assert.strictEqual(yield* state, "open")
          yield* TestClock.adjust("10 seconds")
          let called = false
          const refused = yield* Effect.flip(head(Effect.sync(() => void (called = true))))
          assert.strictEqual(said(refused), "open 20")
          // Both ways into the breaker say the same.
          const { check } = yield* CircuitBreaker
          assert.strictEqual((yield* Effect.flip(check(partyOf("key")))).retryAfterS, 20)
          assert.isFalse(called)
        }).pipe(Effect.provide(layer))
    )

    it.effect("when errors are no fault of the backend, then it stays closed", () =>
      Effect.gen(function* () {
        yield* times(20, Effect.flip(head(Effect.fail(busy))))
        assert.strictEqual(yield* state, "closed")
      }).pipe(Effect.provide(layer))
    )

    it.effect("when clients leave, then it stays closed", () =>
      Effect.gen(function* () {
        for (let i = 0; i < 20; i += 1) {
          const fiber = yield* Effect.forkChild(head(Effect.never), { startImmediately: true })
          yield* Fiber.interrupt(fiber)
        }
        assert.strictEqual(yield* state, "closed")
      }).pipe(Effect.provide(layer))
    )

    it.effect("when all streams break after a good head, then it opens", () =>
      Effect.gen(function* () {
        for (let i = 0; i < 5; i += 1) {
          assert.strictEqual(yield* state, "closed")
          yield* (yield* ok).report("failure")
        }
        assert.strictEqual(yield* state, "open")
      }).pipe(Effect.provide(layer))
    )

    it.effect(
      "when a stream ends well, then failures are counted anew, and a good head alone does not do that",
      () =>
        Effect.gen(function* () {
          yield* times(4, fail)
          yield* (yield* ok).report("success")
          yield* times(4, fail)
          assert.strictEqual(yield* state, "closed")
          yield* ok
          yield* fail
          assert.strictEqual(yield* state, "open")
        }).pipe(Effect.provide(layer))
    )

    it.effect(
      "when it was open for 30 s, then one of fifty calls is let through, and its first frame closes it",
      () =>
        Effect.gen(function* () {
          yield* times(5, fail)
          yield* TestClock.adjust("29999 millis")
          assert.match(yield* refusedOf(ok), /^open/)
          yield* TestClock.adjust("1 millis")
          // Whoever asks before the probe must not be sent away: nobody would ever be the probe.
          assert.strictEqual(yield* state, "half-open")
          let calls = 0
          const slow = Effect.delay(
            Effect.sync(() => void (calls += 1)),
            "1 second"
          )
          const all = yield* Effect.forkChild(
            Effect.all(
              Array.from({ length: 50 }, () => Effect.exit(head(slow))),
              { concurrency: "unbounded" }
            ),
            { startImmediately: true }
          )
          yield* TestClock.adjust("1 second")
          assert.strictEqual((yield* Fiber.join(all)).filter(Exit.isSuccess).length, 1)
          assert.strictEqual(calls, 1)
          assert.strictEqual(yield* state, "closed")
          yield* times(4, fail)
          assert.strictEqual(yield* state, "closed")
        }).pipe(Effect.provide(layer))
    )

    it.effect("when the probe fails, then it stays open for another 30 s", () =>
      Effect.gen(function* () {
        yield* times(5, fail)
        yield* TestClock.adjust("30 seconds")
        assert.strictEqual(yield* fail, "unreachable")
        assert.strictEqual(yield* state, "open")
        yield* TestClock.adjust("29 seconds")
        assert.strictEqual(yield* fail, "open 1")
        yield* TestClock.adjust("1 seconds")
        assert.strictEqual(yield* fail, "unreachable")
      }).pipe(Effect.provide(layer))
    )

    it.effect(
      "when the client of the probe leaves or the probe shows nothing, then another call may be the probe",
      () =>
        Effect.gen(function* () {
          yield* times(5, fail)
          yield* TestClock.adjust("30 seconds")
          const probe = yield* Effect.forkChild(head(Effect.never), { startImmediately: true })
          assert.match(yield* refusedOf(ok), /^open/)
          yield* Fiber.interrupt(probe)
          assert.strictEqual(yield* refusedOf(head(Effect.fail(busy))), "busy")
          yield* ok
          assert.strictEqual(yield* state, "closed")
        }).pipe(Effect.provide(layer))
    )

    it.effect("when a result belongs to a call from before it opened, then it does not count", () =>
      Effect.gen(function* () {
        const old = yield* times(10, ok)
        yield* times(5, fail)
        yield* TestClock.adjust("30 seconds")
        for (const { report } of old.slice(0, 5)) yield* report("success")
        assert.strictEqual(yield* state, "half-open")
        yield* ok
        for (const { report } of old) yield* report("failure")
        assert.strictEqual(yield* state, "closed")
      }).pipe(Effect.provide(layer))
    )

    it.effect(
      "when one key fails while another was served lately, then it stays closed, and opens after that",
      () =>
        Effect.gen(function* () {
          yield* (yield* okOf("good")).report("success")
          yield* times(50, failOf("bad"))
          assert.strictEqual(yield* state, "closed")
          yield* TestClock.adjust("30 seconds")
          yield* failOf("bad")
          assert.strictEqual(yield* state, "closed")
          yield* TestClock.adjust("1 millis")
          yield* failOf("bad")
          assert.strictEqual(yield* state, "open")
        }).pipe(Effect.provide(layer))
    )

    it.effect(
      "when a first frame came, then its key was served, and a key is not protected by its own success",
      () =>
        Effect.gen(function* () {
          yield* okOf("good")
          yield* times(9, failOf("bad"))
          assert.strictEqual(yield* state, "closed")
          yield* (yield* okOf("bad")).report("success")
          yield* TestClock.adjust("30001 millis")
          yield* (yield* okOf("bad")).report("success")
          yield* times(5, failOf("bad"))
          assert.strictEqual(yield* state, "open")
        }).pipe(Effect.provide(layer))
    )

    it.effect(
      "when two keys of one tenant fail in turn, then it stays closed while another tenant was served",
      () =>
        Effect.gen(function* () {
          yield* (yield* okOf("good")).report("success")
          for (let n = 0; n < 25; n += 1) yield* failOf(`bad/${n % 2}`)
          assert.strictEqual(yield* state, "closed")
          yield* TestClock.adjust("30001 millis")
          yield* failOf("bad/0")
          assert.strictEqual(yield* state, "open")
        }).pipe(Effect.provide(layer))
    )

    it.effect(
      "when two keys of the only tenant fail in turn, then it opens although a third was served",
      () =>
        Effect.gen(function* () {
          yield* (yield* okOf("only/0")).report("success")
          for (const key of ["only/1", "only/2", "only/1", "only/2"]) yield* failOf(key)
          assert.strictEqual(yield* state, "closed")
          yield* failOf("only/1")
          assert.strictEqual(yield* state, "open")
        }).pipe(Effect.provide(layer))
    )

    it.effect("when one key of the only tenant fails, then it stays closed while another was served", () =>
      Effect.gen(function* () {
        yield* (yield* okOf("only/0")).report("success")
        yield* times(50, failOf("only/1"))
        assert.strictEqual(yield* state, "closed")
      }).pipe(Effect.provide(layer))
    )

    it.effect(
      "when one tenant has had the probe, then none of its keys has the next while another tenant asks",
      () =>
        Effect.gen(function* () {
          yield* times(5, failOf("bad/0"))
          assert.match(yield* refusedOf(okOf("good")), /^open/)
          yield* TestClock.adjust("30 seconds")
          assert.strictEqual(yield* failOf("bad/0"), "unreachable")
          yield* TestClock.adjust("30 seconds")
          assert.strictEqual(yield* failOf("bad/1"), "open 30")
          yield* okOf("good")
          assert.strictEqual(yield* state, "closed")
        }).pipe(Effect.provide(layer))
    )

    it.effect("when keys of several tenants fail, then it opens, whoever was served", () =>
      Effect.gen(function* () {
        yield* (yield* okOf("good")).report("success")
        for (const key of ["a", "b", "a", "b"]) yield* failOf(key)
        assert.strictEqual(yield* state, "closed")
        yield* failOf("a")
        assert.strictEqual(yield* state, "open")
      }).pipe(Effect.provide(layer))
    )

    it.effect("when a key has had the probe, then it does not get the next one while another key asks", () =>
      Effect.gen(function* () {
        yield* times(5, failOf("bad"))
        assert.match(yield* refusedOf(okOf("good")), /^open/)
        yield* TestClock.adjust("30 seconds")
        assert.strictEqual(yield* failOf("bad"), "unreachable")
        yield* TestClock.adjust("30 seconds")
        assert.strictEqual(yield* state, "half-open")
        assert.strictEqual(yield* failOf("bad"), "open 30")
        yield* okOf("good")
        assert.strictEqual(yield* state, "closed")
      }).pipe(Effect.provide(layer))
    )

    it.effect("when a key is passed over for the probe, then for the open time at most", () =>
      Effect.gen(function* () {
        yield* times(5, failOf("key"))
        assert.match(yield* refusedOf(okOf("gone")), /^open/)
        yield* TestClock.adjust("30 seconds")
        assert.strictEqual(yield* failOf("key"), "unreachable")
        yield* TestClock.adjust("59999 millis")
        assert.strictEqual(yield* failOf("key"), "open 1")
        yield* TestClock.adjust("1 millis")
        yield* okOf("key")
        assert.strictEqual(yield* state, "closed")
      }).pipe(Effect.provide(layer))
    )

    it.effect("when a probe hangs, then others are refused for the open time at most", () =>
      Effect.gen(function* () {
        yield* times(5, failOf("bad"))
        yield* TestClock.adjust("30 seconds")
        const hanging = yield* Effect.forkChild(head(Effect.never, "bad"), { startImmediately: true })
        assert.strictEqual(yield* refusedOf(okOf("good")), "open 1")
        yield* TestClock.adjust("30 seconds")
        assert.match(yield* failOf("bad"), /^open/)
        yield* okOf("good")
        assert.strictEqual(yield* state, "closed")
        yield* Fiber.interrupt(hanging)
        assert.strictEqual(yield* state, "closed")
      }).pipe(Effect.provide(layer))
    )

    it.effect("when a probe was given up, then its failure does not count while another is under way", () =>
      Effect.gen(function* () {
        yield* times(5, failOf("bad"))
        yield* TestClock.adjust("30 seconds")
        const [late, next] = [yield* Deferred.make<string, BackendFailed>(), yield* Deferred.make<string>()]
        const givenUp = yield* Effect.forkChild(Effect.exit(head(Deferred.await(late), "bad")), {
          startImmediately: true
        })
        yield* TestClock.adjust("30 seconds")
        const probe = yield* Effect.forkChild(head(Deferred.await(next), "good"), { startImmediately: true })
        yield* Deferred.fail(late, broken)
        yield* Fiber.join(givenUp)
        assert.strictEqual(yield* state, "half-open")
        yield* Deferred.succeed(next, "frame")
        yield* Fiber.join(probe)
        assert.strictEqual(yield* state, "closed")
      }).pipe(Effect.provide(layer))
    )

    it.effect("when it opens and closes, then each is logged once, however many calls it refused", () =>
      Effect.gen(function* () {
        const lines: Array<string> = []
        const ear = Logger.make<unknown, void>((options) => void lines.push(jsonLine.log(options)))
        yield* Effect.gen(function* () {
          yield* times(5, fail)
          yield* times(20, fail)
          yield* TestClock.adjust("30 seconds")
          yield* ok
        }).pipe(Effect.provide(Logger.layer([ear])))
        assert.lengthOf(lines, 2)
        assert.include(lines[0], '"message":"circuit breaker opened","failures":5')
        assert.include(lines[1], '"message":"circuit breaker closed"')
      }).pipe(Effect.provide(layer))
    )

    it.effect("when the probe's own stream fails after it closed the circuit, then the failure counts", () =>
      Effect.gen(function* () {
        yield* times(5, fail)
        yield* TestClock.adjust("30 seconds")
        const probe = yield* ok
        yield* probe.report("failure")
        yield* times(4, fail)
        assert.strictEqual(yield* state, "open")
      }).pipe(Effect.provide(layer))
    )
  })
}
