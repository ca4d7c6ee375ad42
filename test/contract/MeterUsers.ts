/** What every Meter owes to the end users of an account, each of whom has an account beside it. */
import { assert, describe } from "@effect/vitest"
import type { Layer } from "effect"
import { TestClock } from "effect/testing"
import type { Budgets } from "../../src/domain/Limits.ts"
import { type Account, type Claims } from "../../src/domain/Reservation.ts"
import { Meter, Missing } from "../../src/gates/meter/Meter.ts"
import {
  ask,
  atNoon,
  buckets,
  claimsOf,
  left,
  loadOf,
  noon,
  refusalOf,
  refused,
  reserve,
  take,
  type Terms,
  Wipe
} from "./Meter.ts"

/** The bound of the layer that the suite gets. */
export const mostUsers = 3

/** Claims of a user of the account. */
const claimsBy = (id: string, ofUser: Terms = {}, ofKey: Terms = {}): Claims => {
  const { budgets, limits } = claimsOf(ofUser)
  return { ...claimsOf(ofKey), user: { id, budgets, limits } }
}

const accountOf = ({ account, user }: Claims): Account =>
  user === undefined ? account : { ...account, user: user.id }

const loadUser = (id: string, tokens: Budgets) => loadOf(accountOf(claimsBy(id)), tokens)

export const users = (name: string, layer: () => Layer.Layer<Meter | Wipe>): void => {
  const test = atNoon(layer)

  describe(`${name}: users of an account`, () => {
    test("when one user has used its limits, then it is refused by name, and the others are not", function* () {
      const meter = yield* Meter
      const [ada, bob] = [claimsBy("ada", { rpm: 2, tpm: 50 }), claimsBy("bob", { rpm: 2, tpm: 50 })]
      yield* meter.settle(yield* take(ada, ask("a", 10)), 10)
      yield* meter.settle(yield* take(ada, ask("b", 10)), 10)
      assert.deepStrictEqual(yield* refusalOf(ada, "c"), ["requests", "user", 2, 60])
      const b = yield* take(bob, ask("d", 80))
      assert.deepStrictEqual([b.held, b.available], [50, 50])
      assert.deepStrictEqual(yield* refusalOf(bob, "e"), ["tokens", "user", 50, 1])
      const { requests, tokens } = yield* left(bob)
      assert.deepStrictEqual(
        [requests, tokens],
        [
          { limit: 2, remaining: 1 },
          { limit: 50, remaining: 0 }
        ]
      )
      // All of it counts for the key too.
      assert.deepStrictEqual((yield* left(claimsOf({}))).tokens.remaining, 100_000 - 70)
      assert.deepStrictEqual((yield* left(claimsOf({}))).requests.remaining, 1000 - 3)
    })

    test("when a user has a slot, then it gets no second one before the first is free", function* () {
      const meter = yield* Meter
      const [ada, bob] = [claimsBy("ada", { concurrent: 1 }), claimsBy("bob", { concurrent: 1 })]
      const a = yield* take(ada, ask("a"))
      assert.deepStrictEqual(yield* refusalOf(ada, "b"), ["concurrency", "user", 1, 1])
      yield* take(bob, ask("c"))
      yield* meter.settle(a, 0)
      yield* meter.cancel(yield* take(ada, ask("e")))
      yield* take(ada, ask("f"))
    })

    test("when counters of a user are missing, then it is not admitted, and they are named apart", function* () {
      const claims = claimsBy("ada", { budgets: { day: 10, total: 10 } })
      assert.deepStrictEqual(
        yield* reserve(claims, ask("a", 5)),
        new Missing({
          instant: Date.UTC(2026, 10, 21),
          counters: {},
          userCounters: { day: buckets.day, total: buckets.total }
        })
      )
      yield* loadUser("ada", { day: 0, total: 4 })
      assert.deepStrictEqual((yield* take(claims, ask("a", 50))).held, 6)
    })

    test("when an account has as many users as it may, then another waits until one has nothing that counts, and takes its place", function* () {
      const meter = yield* Meter
      const terms = { budgets: { total: 1000 } }
      for (const id of ["ada", "bob", "cyd"]) {
        yield* loadUser(id, { total: 5 })
        yield* take(claimsBy(id, terms), ask(id, 10))
        yield* TestClock.adjust("10 seconds")
      }
      const dan = claimsBy("dan", terms)
      assert.deepStrictEqual(yield* refusalOf(dan, "dan"), ["users", "key", mostUsers, 120])
      // Those that are in go on, and no other key is concerned.
      yield* take(claimsBy("bob", terms), ask("bob2", 10))
      const other = { ...claimsBy("dan"), account: { group: "g", key: "other" } }
      yield* take(other, ask("other"))
      yield* TestClock.adjust("120 seconds")
      // Its counters were not loaded while it was refused.
      assert.instanceOf(yield* reserve(dan, ask("dan", 10)), Missing)
      yield* loadUser("dan", { total: 0 })
      yield* take(dan, ask("dan", 10))
      // Ada has left with her counters: they come from the ledger when she is back.
      const ada = accountOf(claimsBy("ada"))
      assert.deepStrictEqual((yield* meter.snapshot(ada, noon)).totals, {})
      assert.deepInclude(refused(yield* reserve(claimsBy("ada", terms), ask("back"))), { by: "users" })
    })

    test("when the key itself has no room, then a name that is new takes no place and needs no counters", function* () {
      const full = [
        [{ rpm: 1 }, "requests"],
        [{ tpm: 10 }, "tokens"],
        [{ concurrent: 1 }, "concurrency"]
      ] as const
      for (const [terms, by] of full) {
        const of = (id: string, budgets = {}): Claims => ({
          ...claimsBy(id, { budgets }, terms),
          account: { group: "g", key: by }
        })
        yield* take(of("ada"), ask(`${by} ada`, 10))
        for (const id of ["x", "y", "z"])
          assert.deepInclude(refused(yield* reserve(of(id, { total: 5 }), ask(`${by} ${id}`, 10))), { by })
        const bob = { ...of("bob"), limits: claimsOf({}).limits }
        yield* take(bob, ask(`${by} bob`, 10))
      }
    })

    test("when the counters of a user were compared, then it is among the users for as long as its requests count", function* () {
      const meter = yield* Meter
      const ada = claimsBy("ada")
      yield* take(ada, ask("lapses", 10))
      yield* TestClock.adjust("70 seconds")
      assert.lengthOf((yield* meter.snapshot(accountOf(ada), noon)).lapsed, 1)
      yield* TestClock.adjust("40 seconds")
      yield* take(ada, ask("counts", 10))
      for (const id of ["bob", "cyd"]) yield* take(claimsBy(id), ask(id, 10))
      yield* TestClock.adjust("45 seconds")
      assert.deepInclude(refused(yield* reserve(claimsBy("dan"), ask("dan"))), { by: "users" })
    })
  })
}
