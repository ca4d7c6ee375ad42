/** What every Meter owes to the limits of a key for one model: they have an account beside those of the key and its end user. */
import { assert, describe } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { TestClock } from "effect/testing"
import type { Budgets } from "../../src/domain/Limits.ts"
import { type Account, type Claims, claimsWithoutLimits } from "../../src/domain/Reservation.ts"
import { Meter, Missing } from "../../src/gates/meter/Meter.ts"
import {
  ask,
  atNoon,
  buckets,
  claimsOf,
  left,
  loadOf,
  noon,
  peek,
  refusalOf,
  reserve,
  take,
  type Terms,
  Wipe
} from "./Meter.ts"

const partOf = (terms: Terms) => {
  const { budgets, limits } = claimsOf(terms)
  return { budgets, limits }
}

/** Claims of a request for a model of the key. */
const claimsFor = (name: string, ofModel: Terms = {}, ofKey: Terms = {}): Claims => ({
  ...claimsOf(ofKey),
  model: { name, ...partOf(ofModel) }
})

const withUser = (claims: Claims, id: string, ofUser: Terms = {}): Claims => ({
  ...claims,
  user: { id, ...partOf(ofUser) }
})

const key: Account = { group: "g", key: "k" }

const load = (part: Partial<Account>, tokens: Budgets) => loadOf({ ...key, ...part }, tokens)

export const models = (name: string, layer: () => Layer.Layer<Meter | Wipe>): void => {
  const test = atNoon(layer)

  describe(`${name}: models of a key`, () => {
    test("when the limits for a model are used, then it is refused by name, and another model is not", function* () {
      const meter = yield* Meter
      const [m, n] = [claimsFor("m:1", { rpm: 2, tpm: 50 }), claimsFor("n", { rpm: 2, tpm: 50 })]
      yield* meter.settle(yield* take(m, ask("a", 10)), 10)
      yield* meter.settle(yield* take(m, ask("b", 10)), 10)
      assert.deepStrictEqual(yield* refusalOf(m, "c"), ["requests", "model", 2, 60])
      assert.isTrue((yield* peek(m)).ofModel)
      const b = yield* take(n, ask("d", 80))
      assert.deepStrictEqual([b.held, b.available], [50, 50])
      assert.deepStrictEqual(yield* refusalOf(n, "e"), ["tokens", "model", 50, 1])
      // Requests for a model without limits have those of the key, which has all that was used.
      yield* take(claimsOf({}), ask("f", 10))
      const { requests, tokens } = yield* left(claimsOf({}))
      assert.deepStrictEqual([requests.remaining, tokens.remaining], [1000 - 4, 100_000 - 80])
      assert.isFalse("ofModel" in (yield* peek(claimsOf({}))))
    })

    test("when a user has limits too, then the first of key, user and model that has no room refuses, and the least is shown", function* () {
      const meter = yield* Meter
      const model = { rpm: 3, tpm: 90 }
      const of = (user: string, ofKey: Terms = {}) =>
        withUser(claimsFor("m:1", model, ofKey), user, { rpm: 2, concurrent: 1 })
      const ada = yield* take(of("ada"), ask("a", 10))
      assert.deepStrictEqual(yield* refusalOf(of("ada"), "b"), ["concurrency", "user", 1, 1])
      yield* meter.settle(ada, 10)
      const { ofModel, requests, tokens } = yield* peek(of("ada"))
      assert.deepStrictEqual(
        [requests, tokens],
        [
          { limit: 2, remaining: 1 },
          { limit: 90, remaining: 80 }
        ]
      )
      assert.isTrue(ofModel)
      yield* meter.settle(yield* take(of("ada"), ask("c")), 0)
      assert.deepStrictEqual(yield* refusalOf(of("ada"), "d"), ["requests", "user", 2, 60])
      yield* meter.cancel(yield* take(of("bob"), ask("e")))
      yield* meter.settle(yield* take(of("bob"), ask("f")), 0)
      // All three were for the model, and one was undone.
      assert.deepStrictEqual(yield* refusalOf(of("cyd"), "g"), ["requests", "model", 3, 60])
      assert.deepStrictEqual(yield* refusalOf(of("cyd", { rpm: 3 }), "h"), ["requests", "key", 3, 60])
    })

    test("when the day's tokens for a model are spent, then its budget decides, whatever else is left", function* () {
      const meter = yield* Meter
      const claims = withUser(
        claimsFor("m:1", { budgets: { day: 100 } }, { budgets: { total: 1000 } }),
        "ada",
        { budgets: { day: 500 } }
      )
      assert.deepStrictEqual(
        yield* reserve(claims, ask("a", 5)),
        new Missing({
          instant: Date.UTC(2026, 10, 21),
          counters: { total: buckets.total },
          userCounters: { day: buckets.day },
          modelCounters: { day: buckets.day }
        })
      )
      yield* load({}, { total: 40 })
      yield* load({ user: "ada" }, { day: 0 })
      yield* load({ model: "m:1" }, { day: 40 })
      const a = yield* take(claims, ask("a", 80))
      assert.strictEqual(a.held, 60)
      assert.deepStrictEqual(yield* refusalOf(claims, "b"), ["day", "model", 100, 1])
      const { budgets, modelBudgets, userBudgets } = yield* meter.settle(a, 60)
      assert.deepStrictEqual(
        [budgets, userBudgets, modelBudgets],
        [
          { total: { limit: 1000, remaining: 900 } },
          { day: { limit: 500, remaining: 440 } },
          { day: { limit: 100, remaining: 0 } }
        ]
      )
      assert.deepStrictEqual(yield* refusalOf(claims, "c"), ["day", "model", 100, 43_200])
      // Neither another model nor a request that costs nothing is refused.
      yield* take(claimsOf({}), ask("d", 10))
      yield* take(claims, ask("e", 0, false))
    })

    test("when the store has lost everything, then a request that runs is there again, in each of its accounts", function* () {
      const meter = yield* Meter
      const claims = withUser(claimsFor("m:1", { tpm: 100, budgets: { day: 1000 } }), "ada", {
        concurrent: 1,
        budgets: { total: 1000 }
      })
      const restore = Effect.andThen(
        load({ model: "m:1" }, { day: 100 }),
        load({ user: "ada" }, { total: 100 })
      )
      yield* restore
      const a = yield* take(claims, ask("a", 40))
      yield* yield* Wipe
      yield* meter.renew(a, 10, 40)
      yield* restore
      assert.deepStrictEqual(yield* refusalOf(claims, "b"), ["concurrency", "user", 1, 1])
      yield* meter.settle(a, 60)
      const { modelBudgets, tokens, userBudgets } = yield* peek(claims)
      assert.strictEqual(tokens.remaining, 40)
      for (const left of [modelBudgets?.day, userBudgets?.total])
        assert.isAtMost(left?.remaining ?? 1000, 840)
    })

    const limits = { tpm: 100, budgets: { day: 1000 } }
    for (const [what, claims, part] of [
      ["model", claimsFor("m:1", limits), { model: "m:1" }],
      ["user", withUser(claimsOf({}), "ada", limits), { user: "ada" }]
    ] as const)
      test(`when a request was ended for the key alone, then the ${what} gets its hold back too, and the ledger decides`, function* () {
        const meter = yield* Meter
        const account = { ...key, ...part }
        yield* load(part, { day: 0 })
        yield* take(claims, ask("a", 40))
        yield* TestClock.adjust("40 seconds")
        yield* meter.cancel({ id: "a", claims: claimsOf({}) })
        assert.deepStrictEqual((yield* meter.snapshot(account, noon)).lapsed, ["a"])
        yield* meter.cancel({ id: "a", claims: claimsWithoutLimits(key, part) })
        assert.strictEqual((yield* left(claims)).tokens.remaining, 100)
        const { lapsed, mark, open, totals } = yield* meter.snapshot(account, noon)
        assert.deepStrictEqual([lapsed, open, totals], [[], 0, { day: 40 }])
        assert.isTrue(yield* meter.repair(account, noon, mark, { day: 0 }))
        const { modelBudgets, userBudgets } = yield* peek(claims)
        assert.strictEqual((modelBudgets ?? userBudgets)?.day?.remaining, 1000)
      })

    test("when a request that claimed no account of its model is ended with one, then that has nothing of it", function* () {
      const meter = yield* Meter
      const plain = claimsOf({ tpm: 100, budgets: { total: 1000 } })
      yield* load({}, { total: 0 })
      const a = yield* take(plain, ask("a", 40))
      yield* meter.settle({ ...a, claims: claimsWithoutLimits(key, { model: "m:1" }) }, 30)
      const { budgets, tokens } = yield* left(plain)
      assert.deepStrictEqual([tokens.remaining, budgets.total?.remaining], [70, 970])
      assert.deepStrictEqual((yield* meter.snapshot({ ...key, model: "m:1" }, noon)).totals, {})
    })
  })
}
