import { assert, it } from "@effect/vitest"
import { Effect, Exit, Fiber, type Layer } from "effect"
import { TestClock } from "effect/testing"
import { describe } from "vitest"
import { CircuitBreaker } from "../../src/backend/CircuitBreaker.ts"
import { BackendFailed } from "../../src/domain/Errors.ts"

const broken = new BackendFailed({ fault: "unreachable" })
const busy = new BackendFailed({ fault: "busy" })
const counts = (error: BackendFailed): boolean => error.fault !== "busy"

const head = <A>(effect: Effect.Effect<A, BackendFailed>) =>
  Effect.flatMap(CircuitBreaker, (breaker) => breaker.guard(effect, counts))
const fail = Effect.flip(head(Effect.fail(broken)))
const ok = head(Effect.succeed("frame"))
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
        assert.strictEqual(refused.fault, "circuit-open")
        assert.strictEqual(refused.retryAfterS, 20)
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
        assert.strictEqual((yield* Effect.flip(ok)).fault, "circuit-open")
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
        assert.strictEqual((yield* fail).fault, "unreachable")
        assert.strictEqual(yield* state, "open")
        yield* TestClock.adjust("29 seconds")
        assert.strictEqual((yield* fail).fault, "circuit-open")
        yield* TestClock.adjust("1 seconds")
        assert.strictEqual((yield* fail).fault, "unreachable")
      }).pipe(Effect.provide(layer))
    )

    it.effect("gives the probe's place back when its client leaves, and when the probe was no verdict", () =>
      Effect.gen(function* () {
        yield* times(5, fail)
        yield* TestClock.adjust("30 seconds")
        const probe = yield* Effect.forkChild(head(Effect.never), { startImmediately: true })
        assert.strictEqual((yield* Effect.flip(ok)).fault, "circuit-open")
        yield* Fiber.interrupt(probe)
        assert.strictEqual((yield* Effect.flip(head(Effect.fail(busy)))).fault, "busy")
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
