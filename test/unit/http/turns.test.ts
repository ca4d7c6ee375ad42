/** Large bodies are decoded one at a time. The test holds the clock: a decode takes as long as it says. */
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Fiber, Result } from "effect"
import { TestClock } from "effect/testing"
import { makeDecodeTurns } from "../../../src/http/turns.ts"
import { testWith } from "../../support/testWith.ts"

const test = testWith(it.effect)

const start = <A, E>(effect: Effect.Effect<A, E>) => Effect.forkChild(effect, { startImmediately: true })

/** Turns, and a body of a tenant that takes `ms` to decode. `order` has the names of those that were decoded. */
const makeTurns = Effect.gen(function* () {
  const clock = yield* Clock.Clock
  let busyMs = 0
  const nanos = () => clock.monotonicTimeNanosUnsafe() + BigInt(busyMs * 1_000_000)
  const held: Clock.Clock = {
    ...clock,
    currentTimeMillisUnsafe: () => clock.currentTimeMillisUnsafe(),
    currentTimeMillis: clock.currentTimeMillis,
    currentTimeNanosUnsafe: () => clock.currentTimeNanosUnsafe(),
    currentTimeNanos: clock.currentTimeNanos,
    monotonicTimeNanosUnsafe: nanos,
    monotonicTimeNanos: Effect.sync(nanos),
    sleep: (duration) => clock.sleep(duration)
  }
  const inTurn = yield* Effect.provideService(makeDecodeTurns, Clock.Clock, held)
  const order: Array<string> = []
  const body = (tenant: string, name: string, ms = 10) =>
    inTurn(tenant, () => {
      busyMs += ms
      order.push(name)
      return Result.succeed(name)
    })
  return { body, order }
})

test("when many bodies of one tenant wait, then another tenant's is next, and each has a pause before it", function* () {
  const { body, order } = yield* makeTurns
  yield* Effect.forEach(["a1", "a2", "a3"], (name) => start(body("a", name)))
  yield* start(body("b", "b1"))
  assert.deepStrictEqual(order, ["a1"])
  // A pause is 30 times as long as its turn.
  yield* TestClock.adjust("299 millis")
  assert.deepStrictEqual(order, ["a1"])
  yield* TestClock.adjust("1 millis")
  assert.lengthOf(order, 2)
  yield* TestClock.adjust("300 millis")
  assert.lengthOf(order, 3)
  assert.include(order, "b1")
  yield* TestClock.adjust("300 millis")
  assert.lengthOf(order, 4)
})

test("when a body takes long, then no pause is longer than half a second", function* () {
  const { body, order } = yield* makeTurns
  yield* start(body("a", "image", 200))
  yield* start(body("b", "next"))
  yield* TestClock.adjust("500 millis")
  assert.deepStrictEqual(order, ["image", "next"])
})

test("when no turn comes in time, or the client leaves, then the body is not decoded and takes no turn", function* () {
  const { body, order } = yield* makeTurns
  const waiting = yield* Effect.forEach(Array.from({ length: 60 }), (_, n) => start(body("a", `${n}`, 200)))
  const left = yield* start(body("b", "left"))
  yield* Fiber.interrupt(left)
  const late = yield* start(Effect.flip(body("a", "late")))
  yield* TestClock.adjust("20 seconds")
  assert.deepInclude(yield* Fiber.join(late), { _tag: "Unavailable", crowded: true })
  assert.notInclude(order, "left")
  yield* Fiber.interruptAll(waiting)
  yield* TestClock.adjust("1 seconds")
  assert.strictEqual(yield* body("b", "last"), "last")
})
