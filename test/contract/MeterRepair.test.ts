/**
 * Both Meters, with a lease that is shorter than what a load may be behind an admission: whose settlement cannot be
 * delivered keeps what it holds and keeps the repair away, and is then charged to the token.
 */
import { assert, it } from "@effect/vitest"
import { TestClock } from "effect/testing"
import { layerMemory } from "../../src/gates/meter/memory/layer.ts"
import { Meter } from "../../src/gates/meter/Meter.ts"
import { layerMeterOnClock } from "../support/TestMeter.ts"
import { ask, claimsOf, left, load, noon, take } from "./Meter.ts"
import { testWith } from "../support/testWith.ts"

const leaseS = 3

for (const [name, twin] of [
  ["memory", layerMemory({ leaseS })],
  ["Redis", layerMeterOnClock({ leaseS })]
] as const) {
  const test = testWith(it.effect, twin)
  test(`when a settlement comes after its lease (${name}), then it is charged to the token, before and after a repair`, function* () {
    const meter = yield* Meter
    yield* TestClock.setTime(noon)
    const claims = claimsOf({ budgets: { total: 1000 } })
    yield* load(claims, { total: 100 })
    const late = yield* take(claims, ask("late", 30))
    yield* TestClock.adjust("4 seconds")
    const { lapsed, mark, open } = yield* meter.snapshot(claims.account, noon)
    assert.deepStrictEqual([open, lapsed], [0, ["late"]])
    // The ledger has the request already: 100 and its 20.
    assert.isFalse(yield* meter.repair(claims.account, noon, mark, { total: 120 }))
    assert.strictEqual((yield* left(claims)).budgets.total?.remaining, 870)
    yield* meter.settle(late, 20)
    assert.strictEqual((yield* left(claims)).budgets.total?.remaining, 880)
    const rest = yield* meter.snapshot(claims.account, noon)
    assert.isTrue(yield* meter.repair(claims.account, noon, rest.mark, { total: 150 }))
    // One that was admitted on the repaired counter is charged to the token.
    const next = yield* take(claims, ask("next", 30))
    yield* meter.settle(next, 7)
    assert.strictEqual((yield* left(claims)).budgets.total?.remaining, 843)
  })
}
