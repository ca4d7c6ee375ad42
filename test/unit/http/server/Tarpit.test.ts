import { assert, it } from "@effect/vitest"
import { Effect, Exit, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { Tarpit } from "../../../../src/http/server/Tarpit.ts"
import { testWith } from "../../../support/testWith.ts"

const turns = Effect.fnUntraced(function* (count: number, address = "192.0.2.1") {
  const { turn } = yield* Tarpit
  return yield* Effect.forEach(Array.from({ length: count }), () =>
    Effect.forkChild(turn(address), { startImmediately: true })
  )
})

type Turns = ReadonlyArray<Fiber.Fiber<boolean>>
const done = (fibers: Turns): number => fibers.filter((fiber) => fiber.pollUnsafe() !== undefined).length
const came = (fibers: Turns): number =>
  fibers.filter((fiber) => {
    const exit = fiber.pollUnsafe()
    return exit !== undefined && Exit.isSuccess(exit) && exit.value
  }).length

const slow = Tarpit.layer({ perSecond: 10, burst: 10, rowsPerMinute: 100_000 })

const test = testWith(it.effect, slow)

test("when refusals are below the rate, then none waits; beyond it each waits its turn, and none longer than the bound", function* () {
  for (let second = 0; second < 5; second += 1) {
    assert.strictEqual(done(yield* turns(10)), 10)
    yield* TestClock.adjust("1 second")
  }
  const flood = yield* turns(100)
  assert.strictEqual(done(flood), 10, "the burst")
  yield* TestClock.adjust("1 second")
  assert.strictEqual(done(flood), 20)
  yield* TestClock.adjust("2 seconds")
  assert.strictEqual(done(flood), 100, "none is later than three seconds")
  assert.isAtMost(came(flood), 40, "and who did not get a turn is told so")
  const late = yield* turns(3)
  assert.isBelow(done(late), 3, "the burst is still used up")
  yield* TestClock.adjust("2 seconds")
  assert.strictEqual(done(yield* turns(10)), 10, "and gone after a quiet time")
})

test("when a client leaves while it waits, then it is gone at once and those behind it move up", function* () {
  const flood = yield* turns(1010)
  assert.strictEqual(done(flood), 10)
  const honest = yield* turns(1)
  yield* Effect.forEach(flood, Fiber.interrupt)
  assert.strictEqual(done(flood), 1010)
  yield* TestClock.adjust("100 millis")
  assert.strictEqual(came(honest), 1)
})

test("when a flood comes without end and leaves at once, then an honest client waits a few turns", function* () {
  yield* turns(10)
  const honest = yield* turns(1)
  let waitedMs = 0
  while (came(honest) === 0 && waitedMs < 2000) {
    const flood = yield* turns(4)
    yield* TestClock.adjust("10 millis")
    waitedMs += 10
    yield* Effect.forEach(flood, Fiber.interrupt)
  }
  assert.isAtMost(waitedMs, 200)
})

test("when one address floods, then a refusal to another waits one turn, /64 by /64", function* () {
  yield* turns(10)
  const flood = [...(yield* turns(50, "2001:db8::1")), ...(yield* turns(50, "2001:db8::ffff:2"))]
  const honest = [...(yield* turns(1, "2001:db8:0:1::1")), ...(yield* turns(1, "198.51.100.7"))]
  yield* TestClock.adjust("300 millis")
  assert.strictEqual(came(honest), 2)
  assert.strictEqual(came(flood), 1)
})

test("when no turn is free, then asking for one without waiting says so", function* () {
  const { turnNow } = yield* Tarpit
  const address = "192.0.2.1"
  const taken = yield* Effect.forEach(Array.from({ length: 12 }), () => turnNow(address))
  assert.strictEqual(taken.filter(Boolean).length, 10)
  yield* TestClock.adjust("100 millis")
  assert.isTrue(yield* turnNow(address))
  assert.isFalse(yield* turnNow(address))
})

const scarce = Tarpit.layer({ perSecond: 200, burst: 100, rowsPerMinute: 3 })

/** How many of `count` refusals have rows of their own. */
const rows = Effect.fnUntraced(function* (count: number, address: string) {
  const fibers = yield* turns(count, address)
  yield* TestClock.adjust("1 second")
  return came(fibers)
})

testWith(it.effect, scarce)(
  "when an address is refused more often than it has rows, then the others have none of their own",
  function* () {
    assert.strictEqual(yield* rows(50, "192.0.2.1"), 3)
    assert.strictEqual(yield* rows(50, "192.0.2.1"), 0)
    assert.strictEqual(yield* rows(5, "2001:db8::1"), 3, "another address has its own")
    assert.strictEqual(yield* rows(5, "2001:db8::2"), 0, "all of a /64 have the same")
    yield* TestClock.adjust("1 minute")
    assert.strictEqual(yield* rows(50, "192.0.2.1"), 3)
  }
)

testWith(it.effect, scarce)(
  "when many addresses are refused, then all together have ten times the rows of one",
  function* () {
    let own = 0
    for (let n = 0; n < 50; n += 1) own += yield* rows(2, `192.0.2.${n}`)
    // And what fifty seconds brought.
    assert.isAtMost(own, 30 + 25)
    assert.isAtLeast(own, 50)
  }
)

test("when a client had left before its request was read, then it takes no turn and has no row of its own", function* () {
  const { turnNow } = yield* Tarpit
  const left = yield* turns(500, "")
  assert.strictEqual(done(left), 500)
  assert.strictEqual(came(left), 0)
  assert.isFalse(yield* turnNow(""))
  assert.strictEqual(came(yield* turns(10)), 10)
})
