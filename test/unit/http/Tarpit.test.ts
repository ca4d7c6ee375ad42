import { assert, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { Tarpit } from "../../../src/http/Tarpit.ts"

const turns = (count: number) =>
  Effect.gen(function* () {
    const { turn } = yield* Tarpit
    return yield* Effect.forEach(Array.from({ length: count }), () =>
      Effect.forkChild(turn, { startImmediately: true })
    )
  })

const done = (fibers: ReadonlyArray<Fiber.Fiber<void>>): number =>
  fibers.filter((fiber) => fiber.pollUnsafe() !== undefined).length

it.effect("below the rate nothing waits; beyond it each waits its turn, and none longer than the bound", () =>
  Effect.gen(function* () {
    for (let second = 0; second < 5; second += 1) {
      assert.strictEqual(done(yield* turns(10)), 10)
      yield* TestClock.adjust("1 second")
    }
    const flood = yield* turns(100)
    assert.strictEqual(done(flood), 11, "the burst, and the first of the line")
    yield* TestClock.adjust("1 second")
    assert.strictEqual(done(flood), 21)
    yield* TestClock.adjust("1101 millis")
    assert.strictEqual(done(flood), 100, "none is later than two seconds")
    const late = yield* turns(3)
    assert.isBelow(done(late), 3, "the burst is still used up")
    yield* TestClock.adjust("2 seconds")
    assert.strictEqual(done(yield* turns(10)), 10, "and gone after a quiet time")
  }).pipe(Effect.provide(Tarpit.layer({ perSecond: 10, burst: 10, mostMs: 2000 })))
)

it.effect("whoever leaves while waiting is gone at once", () =>
  Effect.gen(function* () {
    const flood = yield* turns(20)
    const last = flood.at(-1)
    assert.isDefined(last)
    if (last === undefined) return
    assert.isUndefined(last.pollUnsafe())
    yield* Fiber.interrupt(last)
    assert.isDefined(last.pollUnsafe())
  }).pipe(Effect.provide(Tarpit.layer({ perSecond: 10, burst: 10, mostMs: 2000 })))
)
