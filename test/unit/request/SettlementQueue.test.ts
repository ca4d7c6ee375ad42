/** What is owed to a store that was away: paid before anybody is admitted, asked for once, and not owed for ever. */
import { assert, it } from "@effect/vitest"
import { Effect, Fiber, Layer, Logger } from "effect"
import { TestClock } from "effect/testing"
import { MeterDown } from "../../../src/gates/meter/Meter.ts"
import * as Metrics from "../../../src/observability/Metrics.ts"
import { SettlementQueue } from "../../../src/gates/limits/SettlementQueue.ts"
import { testWith } from "../../support/testWith.ts"

const layer = SettlementQueue.layer({ drainMs: 0 }).pipe(
  Layer.provide(Metrics.layer),
  Layer.provideMerge(Logger.layer([]))
)
const [key, other] = [
  { group: "g", key: "k" },
  { group: "g", key: "other" }
]

/** A settlement at a store that can be taken away; the store is slow. */
const store = () => {
  const state = { down: true, asked: 0, settled: 0 }
  const settling = Effect.suspend(() => {
    state.asked += 1
    return state.down ? new MeterDown({ cause: "away" }) : Effect.sync(() => void (state.settled += 1))
  }).pipe(Effect.delay("400 millis"))
  return { state, settling }
}

const refused = <A>(effect: Effect.Effect<A, MeterDown>) =>
  Effect.match(effect, { onSuccess: () => false, onFailure: () => true })

const test = testWith(it.effect, layer)

test("when an account owes a settlement, then its next request settles it first or is refused, and other accounts are not", function* () {
  const [settlements, { state, settling }] = [yield* SettlementQueue, store()]
  yield* settlements.flush(key)
  yield* settlements.enqueue(key, "settle", settling)
  const tries = Effect.forEach([1, 2, 3], () => refused(settlements.flush(key)), { concurrency: 3 })
  const first = yield* Effect.forkChild(tries, { startImmediately: true })
  yield* settlements.flush(other)
  yield* TestClock.adjust("400 millis")
  assert.deepStrictEqual(yield* Fiber.join(first), [true, true, true])
  // Once for the three, once for itself.
  assert.strictEqual(state.asked, 2)
  state.down = false
  const second = yield* Effect.forkChild(tries, { startImmediately: true })
  yield* TestClock.adjust("1 second")
  assert.deepStrictEqual(yield* Fiber.join(second), [false, false, false])
  yield* settlements.flush(key)
  // It is paid: nobody tries any more.
  const { asked } = state
  yield* TestClock.adjust("1 minute")
  assert.strictEqual(state.asked, asked)
  assert.isAtLeast(state.settled, 1)
  assert.strictEqual(yield* settlements.backlog, 0)
})

test("when a settlement waits, then it is tried again without a request", function* () {
  const [settlements, { state, settling }] = [yield* SettlementQueue, store()]
  yield* settlements.enqueue(key, "settle", settling)
  yield* TestClock.adjust("10 seconds")
  state.down = false
  yield* TestClock.adjust("900 millis")
  assert.strictEqual(state.settled, 1)
  yield* settlements.flush(key)
})

test("when a settlement is given up or breaks, then its account is open again", function* () {
  const [settlements, { settling }] = [yield* SettlementQueue, store()]
  yield* settlements.enqueue(key, "settle", settling)
  yield* settlements.enqueue(other, "settle", Effect.die("broken"))
  yield* TestClock.adjust("1 millis")
  yield* settlements.flush(other)
  yield* TestClock.adjust("3 minutes")
  yield* settlements.flush(key)
  assert.strictEqual(yield* settlements.backlog, 0)
})
