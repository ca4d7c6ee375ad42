/** What every Meter owes to budgets that the accounts of a group (the keys of a tenant) share. */
import { assert, describe } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { Meter, Missing, Reserved } from "../../src/gates/meter/Meter.ts"
import type { Budgets } from "../../src/domain/Limits.ts"
import type { Claims } from "../../src/domain/Reservation.ts"
import { ask, atNoon, buckets, claimsOf, load, loadOf, noon, refused, reserve, take, Wipe } from "./Meter.ts"

const group = "g"

/** Claims of one account of the group. */
const claimsBy = (key: string, tenantBudgets: Budgets, budgets: Budgets = {}): Claims => ({
  ...claimsOf({ budgets }, { group, key }),
  tenantBudgets
})

const loadGroup = (tokens: Budgets) => loadOf({ group }, tokens)

const spentOf = (claims: Claims) =>
  Effect.map(
    Effect.flatMap(Meter, (meter) => meter.peek(claims)),
    (headroom) => {
      const left = headroom instanceof Missing ? undefined : headroom.tenantBudgets?.total
      return left === undefined ? Number.NaN : left.limit - left.remaining
    }
  )

export const groups = (name: string, layer: () => Layer.Layer<Meter | Wipe>): void => {
  const test = atNoon(layer)

  describe(`${name}: budgets of a group`, () => {
    test("when one account has used the group's budget, then the others are refused too, and told whose budget it is", function* () {
      const meter = yield* Meter
      const [one, other] = [claimsBy("one", { month: 100 }), claimsBy("other", { month: 100 }, { day: 500 })]
      yield* loadGroup({ month: 0 })
      yield* load(other, { day: 0 })
      yield* meter.settle(yield* take(one, ask("a", 60)), 60)
      const second = yield* take(other, ask("b", 60))
      assert.deepStrictEqual([second.held, second.available], [40, 40])
      const refusal = Effect.map(reserve(one, ask("c", 1)), (verdict) => {
        const { by, isSpent, limit, retryAfterS, scope } = refused(verdict)
        return [by, scope, limit, isSpent, retryAfterS]
      })
      assert.deepStrictEqual(yield* refusal, ["month", "tenant", 100, false, 1])
      yield* meter.renew(second, 40, 40)
      assert.deepStrictEqual(yield* refusal, ["month", "tenant", 100, true, 43_200 + 9 * 86_400])
      yield* meter.cancel(second)
      assert.strictEqual((yield* take(one, ask("d", 60))).held, 40)
    })

    test("when counters of the group are missing, then nobody is admitted, and they are named apart", function* () {
      const claims = claimsBy("one", { day: 10, total: 10 }, { day: 10 })
      const missing = {
        instant: Date.UTC(2026, 10, 21),
        tenantCounters: { day: buckets.day, total: buckets.total }
      }
      assert.deepStrictEqual(
        yield* reserve(claims, ask("a", 5)),
        new Missing({ counters: { day: buckets.day }, ...missing })
      )
      yield* load(claims, { day: 0 })
      assert.deepStrictEqual(yield* reserve(claims, ask("a", 5)), new Missing({ counters: {}, ...missing }))
      yield* loadGroup({ day: 0, total: 0 })
      assert.strictEqual((yield* take(claims, ask("a", 5))).held, 5)
    })

    test("when nobody claims the group's budget, then its counter is kept up all the same", function* () {
      const meter = yield* Meter
      yield* loadGroup({ total: 0 })
      const claims = claimsOf({}, { group, key: "one" })
      yield* meter.settle(yield* take(claims, ask("a", 60)), 50)
      assert.strictEqual(yield* spentOf(claimsBy("other", { total: 100 })), 50)
    })

    test("when many come at once on several accounts, then the group's budget is held to the token", function* () {
      yield* loadGroup({ total: 0 })
      const verdicts = yield* Effect.forEach(
        Array.from({ length: 90 }, (_, i) => i),
        (i) => reserve(claimsBy(`key${i % 9}`, { total: 1000 }), ask(`p${i}`, 70)),
        { concurrency: "unbounded" }
      )
      const held = verdicts.flatMap((verdict) =>
        verdict instanceof Reserved ? [verdict.reservation.held] : []
      )
      assert.strictEqual(
        held.reduce((sum, tokens) => sum + tokens, 0),
        1000
      )
      assert.strictEqual(held.length, 15)
      const { scope } = refused(yield* reserve(claimsBy("key0", { total: 1000 }), ask("late", 1)))
      assert.strictEqual(scope, "tenant")
    })

    test("when groups have like names, then they share nothing", function* () {
      yield* loadGroup({ total: 100 })
      const others = { ...claimsOf({}, { group: "another", key: "one" }), tenantBudgets: { total: 100 } }
      assert.instanceOf(yield* reserve(others, ask("a", 1)), Missing)
    })

    test("when the store has lost everything, then a request that ends is charged to the group once it is loaded again", function* () {
      const meter = yield* Meter
      const claims = claimsBy("one", { total: 1000 })
      yield* loadGroup({ total: 100 })
      const a = yield* take(claims, ask("a", 40))
      yield* yield* Wipe
      assert.deepStrictEqual(yield* meter.renew(a, 10, 70), { held: 40, exhausted: false })
      yield* loadGroup({ total: 100 })
      yield* meter.settle(a, 60)
      assert.isAtLeast(yield* spentOf(claims), 160)
    })
  })

  describe(`${name}: comparison of a group with the ledger`, () => {
    const all = { group, accounts: ["one", "other", "unused"] }

    test("when all accounts are idle and nothing has changed, then the counters of the group are repaired", function* () {
      const meter = yield* Meter
      const claims = claimsBy("one", { total: 1000 })
      yield* loadGroup({ day: 7, total: 100 })
      yield* meter.settle(yield* take(claims, ask("a", 30)), 20)
      const { mark, open, totals } = yield* meter.snapshot(all, noon)
      assert.deepStrictEqual([open, totals], [0, { day: 27, total: 120 }])
      assert.isTrue(yield* meter.repair(all, noon, mark, { day: 27, month: 5, total: 110 }))
      assert.strictEqual(yield* spentOf(claims), 110)
      // A counter that the store does not know stays unknown.
      assert.deepStrictEqual((yield* meter.snapshot(all, noon)).totals, {
        day: 27,
        total: 110
      })
      yield* meter.settle(yield* take(claims, ask("b", 30)), 20)
      assert.strictEqual(yield* spentOf(claims), 130)
    })

    test("when an account has an open request, then the group is not idle, and is not repaired", function* () {
      const meter = yield* Meter
      const claims = claimsBy("other", { total: 1000 })
      yield* loadGroup({ total: 100 })
      const a = yield* take(claims, ask("a", 30))
      const { mark, open } = yield* meter.snapshot(all, noon)
      assert.strictEqual(open, 1)
      assert.isFalse(yield* meter.repair(all, noon, mark, { total: 0 }))
      yield* meter.settle(a, 30)
      assert.isFalse(yield* meter.repair(all, noon, mark, { total: 0 }))
      assert.strictEqual(yield* spentOf(claims), 130)
    })
  })
}
