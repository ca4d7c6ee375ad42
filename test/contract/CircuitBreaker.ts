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
    it.effect("opens at the fifth consecutive failure and refuses without calling, saying how long", () =>
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

    it.effect("is not opened by errors that do not speak against the backend", () =>
      Effect.gen(function* () {
        yield* times(20, Effect.flip(head(Effect.fail(busy))))
        assert.strictEqual(yield* state, "closed")
      }).pipe(Effect.provide(layer))
    )

    it.effect("is not opened by clients that leave", () =>
      Effect.gen(function* () {
        for (let i = 0; i < 20; i += 1) {
          const fiber = yield* Effect.forkChild(head(Effect.never), { startImmediately: true })
          yield* Fiber.interrupt(fiber)
        }
        assert.strictEqual(yield* state, "closed")
      }).pipe(Effect.provide(layer))
    )

    it.effect("is opened by streams that all break after a good head", () =>
      Effect.gen(function* () {
        for (let i = 0; i < 5; i += 1) {
          assert.strictEqual(yield* state, "closed")
          yield* (yield* ok).report("failure")
        }
        assert.strictEqual(yield* state, "open")
      }).pipe(Effect.provide(layer))
    )

    it.effect("forgets a streak when a stream ends well, but not when a head is good", () =>
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

    it.effect("lets exactly one of fifty through after 30 s; its first frame closes it", () =>
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

    it.effect("stays open for another 30 s when the probe fails", () =>
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

    it.effect("gives the probe's place back when its client leaves, and when the probe was no verdict", () =>
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

    it.effect("does not listen to results from before it opened", () =>
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
      "is not opened by one key while another was served within the open time, and is after that",
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

    it.effect("counts a first frame as being served, and a key's own success does not protect it", () =>
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

    it.effect("is opened by failures of several tenants, whoever was served", () =>
      Effect.gen(function* () {
        yield* (yield* okOf("good")).report("success")
        for (const key of ["a", "b", "a", "b"]) yield* failOf(key)
        assert.strictEqual(yield* state, "closed")
        yield* failOf("a")
        assert.strictEqual(yield* state, "open")
      }).pipe(Effect.provide(layer))
    )

    it.effect("does not give the probe to the same key twice in a row while another one asks", () =>
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

    it.effect("passes a key over for the open time at most: nobody is locked out for good", () =>
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

    it.effect("does not let a probe that hangs keep the others out for longer than the open time", () =>
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

    it.effect("does not listen to the failure of a probe that was given up, while another is under way", () =>
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

    it.effect("logs once that it opened and once that it closed, however many it refused", () =>
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

    it.effect("counts the end of the probe's own stream against the circuit it closed", () =>
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
