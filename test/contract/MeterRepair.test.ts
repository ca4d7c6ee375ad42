/** Both Meters: a settlement that comes after the ledger has set its counter right is not counted a second time. */
import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { TestClock } from "effect/testing"
import { layerMemory } from "../../src/gates/Meter/memory.ts"
import { Meter } from "../../src/gates/Meter/Meter.ts"
import { layerMeterOnClock } from "../support/TestMeter.ts"
import { ask, claimsOf, left, load, noon, take } from "./Meter.ts"

/** Shorter than what a load may be behind an admission. */
const leaseS = 3

for (const [name, twin] of [
  ["memory", layerMemory({ leaseS })],
  ["Redis", layerMeterOnClock({ leaseS })]
] as const) {
  it.effect(name, () =>
    Effect.gen(function* () {
      const meter = yield* Meter
      yield* TestClock.setTime(noon)
      const claims = claimsOf({ budgets: { total: 1000 } })
      yield* load(claims, { total: 100 })
      const late = yield* take(claims, ask("late", 30))
      yield* TestClock.adjust("4 seconds")
      const { mark, open } = yield* meter.survey(claims.account, noon)
      assert.strictEqual(open, 0)
      // The ledger has the request already: 100 and its 20.
      assert.isTrue(yield* meter.repair(claims.account, noon, mark, { total: 120 }))
      yield* meter.settle(late, 20)
      assert.strictEqual((yield* left(claims)).budgets.total?.remaining, 880)
      // One that was admitted on the repaired counter is charged to the token.
      const next = yield* take(claims, ask("next", 30))
      yield* meter.settle(next, 7)
      assert.strictEqual((yield* left(claims)).budgets.total?.remaining, 873)
    }).pipe(Effect.provide(twin))
  )
}
