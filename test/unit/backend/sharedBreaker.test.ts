/** One circuit for two workers. */
import { assert, it } from "@effect/vitest"
import { Deferred, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import type { CircuitBreaker } from "../../../src/backend/CircuitBreaker.ts"
import { makeCircuitHost } from "../../../src/backend/CircuitHost.ts"
import { BackendFailed } from "../../../src/domain/Errors.ts"
import { breakerOf } from "../../support/circuitInProcess.ts"

const options = { failures: 5, openMs: 30_000 }
const broken = new BackendFailed({ fault: "unreachable" })
const partyOf = (name: string) => ({ keyId: name, tenantId: name })

const makeWorkers = Effect.gen(function* () {
  const host = yield* makeCircuitHost<string>(options, () => Effect.void)
  const [a, b] = [yield* breakerOf(host, "a", options), yield* breakerOf(host, "b", options)]
  return { host, a, b }
})
type Breaker = CircuitBreaker["Service"]

const fail = (breaker: Breaker, key = "key") =>
  Effect.flip(breaker.guard(partyOf(key), Effect.fail(broken), () => true))
const serve = (breaker: Breaker, key = "key") =>
  breaker.guard(partyOf(key), Effect.succeed("frame"), () => true)

it.effect(
  "when failures come to different workers, then their streak is one, and all workers open together",
  () =>
    Effect.gen(function* () {
      const { a, b } = yield* makeWorkers
      for (const breaker of [a, b, a, b]) yield* fail(breaker)
      assert.strictEqual(yield* a.state, "closed")
      yield* fail(a)
      assert.strictEqual(yield* a.state, "open")
      assert.strictEqual((yield* fail(b))._tag, "CircuitOpen")
    })
)

it.effect("when another worker ends a stream well, then the streak of all is over", () =>
  Effect.gen(function* () {
    const { a, b } = yield* makeWorkers
    for (const breaker of [a, b, a, b]) yield* fail(breaker)
    yield* (yield* serve(b)).report("success")
    for (const breaker of [a, b, a, b]) yield* fail(breaker)
    assert.strictEqual(yield* a.state, "closed")
    yield* fail(a)
    assert.strictEqual(yield* b.state, "open")
  })
)

it.effect(
  "when one key alone fails in one worker while another key is served by the other, then it stays closed",
  () =>
    Effect.gen(function* () {
      const { a, b } = yield* makeWorkers
      yield* serve(b, "good")
      yield* TestClock.adjust("250 millis")
      yield* Effect.replicateEffect(fail(a, "bad"), 20)
      assert.strictEqual(yield* a.state, "closed")
    })
)

it.effect(
  "when another key was served longer ago than the circuit remembers, then a streak of one key opens it",
  () =>
    Effect.gen(function* () {
      const { a, b } = yield* makeWorkers
      yield* serve(b, "good")
      // The authority learns of it 250 ms later.
      yield* TestClock.adjust("30001 millis")
      yield* Effect.replicateEffect(fail(a, "bad"), 5)
      assert.strictEqual(yield* a.state, "open")
    })
)

it.effect(
  "when a worker tells late who was served, then the time counts, not the order of the messages",
  () =>
    Effect.gen(function* () {
      const host = yield* makeCircuitHost<string>(options, () => Effect.void)
      const [a, first, second] = [yield* breakerOf(host, "a", options), partyOf("first"), partyOf("second")]
      yield* TestClock.adjust("1 minute")
      host.seen({ served: [{ party: first, agoMs: 29_000 }], asked: [] })
      host.seen({ served: [{ party: second, agoMs: 31_000 }], asked: [] })
      yield* Effect.replicateEffect(fail(a, "bad"), 5)
      assert.strictEqual(yield* a.state, "closed", "the first was served within the last 30 s")
      yield* Effect.replicateEffect(fail(a, "first"), 1)
      assert.strictEqual(yield* a.state, "open", "the streak is of two keys now")
    })
)

it.effect(
  "when the circuit is half-open, then one worker has the probe, and the other gets it when the first one dies",
  () =>
    Effect.gen(function* () {
      const { a, b, host } = yield* makeWorkers
      yield* Effect.replicateEffect(fail(a), 5)
      yield* TestClock.adjust("30 seconds")
      const never = yield* Deferred.make<string>()
      const probe = yield* Effect.forkChild(
        a.guard(partyOf("key"), Deferred.await(never), () => true),
        { startImmediately: true }
      )
      assert.strictEqual((yield* fail(b))._tag, "CircuitOpen")
      assert.strictEqual(yield* b.state, "half-open")
      yield* host.forget("a")
      yield* serve(b)
      assert.strictEqual(yield* a.state, "closed")
      yield* Fiber.interrupt(probe)
    })
)
