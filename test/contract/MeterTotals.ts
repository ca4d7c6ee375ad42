/** What every Meter has to do with totals, and when its store has forgotten everything. */
import { assert, describe } from "@effect/vitest"
import { Effect, type Layer } from "effect"
import { TestClock } from "effect/testing"
import { Meter, Missing } from "../../src/gates/meter/Meter.ts"
import type { Account, Claims } from "../../src/domain/Reservation.ts"
import {
  ask,
  atNoon,
  buckets,
  claimsOf,
  granted,
  left,
  load,
  noon,
  refused,
  reserve,
  take,
  Wipe
} from "./Meter.ts"

export const totals = (name: string, layer: () => Layer.Layer<Meter | Wipe>): void => {
  const test = atNoon(layer)

  describe(`${name}: totals`, () => {
    test("when a total exists, then load does not change it", function* () {
      const claims = claimsOf({ budgets: { day: 100 } })
      yield* load(claims, { day: 70 })
      yield* take(claims, ask("a", 10))
      yield* load(claims, { day: 0 })
      assert.strictEqual((yield* left(claims)).budgets.day?.remaining, 20)
    })

    test("when only requests that run fill a budget, then it is held and not spent, and what is spent decides first", function* () {
      const meter = yield* Meter
      const claims = claimsOf({ budgets: { day: 100, month: 90 } })
      yield* load(claims, { day: 40, month: 30 })
      const refusal = Effect.map(reserve(claims, ask("z", 1)), (verdict) => {
        const { by, isSpent, retryAfterS } = refused(verdict)
        return [by, isSpent, retryAfterS]
      })
      const a = yield* take(claims, ask("a", 50))
      const b = yield* take(claims, ask("b", 10))
      assert.deepStrictEqual(yield* refusal, ["month", false, 1])
      // Used tokens of a hold are spent; the other hold may still be given back.
      yield* meter.renew(a, 50, 50)
      assert.deepStrictEqual(yield* refusal, ["month", false, 1])
      yield* meter.settle(b, 10)
      yield* meter.settle(a, 60)
      // Ten tokens more than were held: the day is spent too, and ends before the month.
      assert.deepStrictEqual(yield* refusal, ["month", true, 43_200 + 9 * 86_400])
      // What is given back unused is held no more.
      yield* meter.settle(yield* take(claimsOf({}), ask("c", 50)), 0)
      yield* meter.cancel(yield* take(claimsOf({}), ask("d", 50)))
      assert.deepStrictEqual(yield* refusal, ["month", true, 43_200 + 9 * 86_400])
      yield* take(claimsOf({}), ask("e", 20))
      const mixed = yield* reserve(claimsOf({ budgets: { day: 110, month: 120 } }), ask("f", 1))
      assert.deepInclude(refused(mixed), { by: "day", isSpent: true, retryAfterS: 43_200 })
    })

    test("when budgets are spent, then Retry-After is the end of the longest of their periods", function* () {
      const retry = Effect.fnUntraced(function* (budgets: Claims["budgets"]) {
        const { by, retryAfterS } = refused(yield* reserve(claimsOf({ budgets }), ask("a", 1)))
        return [by, retryAfterS]
      })
      yield* load(claimsOf({}), { day: 5, month: 5, total: 5 })
      assert.deepStrictEqual(yield* retry({ day: 5, month: 50, total: 50 }), ["day", 43_200])
      assert.deepStrictEqual(yield* retry({ day: 5, month: 5, total: 50 }), ["month", 43_200 + 9 * 86_400])
      assert.deepStrictEqual(yield* retry({ day: 5, month: 50, total: 0 }), ["total", 86_400])
      // The week ends tomorrow, and in December after the month.
      yield* load(claimsOf({}), { week: 5 })
      assert.deepStrictEqual(yield* retry({ week: 5, month: 50 }), ["week", 43_200 + 86_400])
      assert.deepStrictEqual(yield* retry({ week: 5, month: 5 }), ["month", 43_200 + 9 * 86_400])
      yield* TestClock.setTime(Date.UTC(2026, 10, 30, 12))
      const names = ["2026-11-30", "w2026-11-30", "2026-11"]
      yield* (yield* Meter).load(
        claimsOf({}).account,
        names.map((counter) => ({ counter, tokens: 5 }))
      )
      assert.deepStrictEqual(yield* retry({ week: 5, month: 5 }), ["week", 43_200 + 6 * 86_400])
    })

    test("when one command ends a request twice, then the second answer has what the first one left of an extra budget", function* () {
      const meter = yield* Meter
      const extra = { tokens: 50, upTo: 120, until: noon + 86_400_000 }
      const claims = claimsOf({ budgets: { day: 10, extra } })
      yield* load(claims, { day: 0, total: 0 })
      const a = yield* take(claims, ask("a", 10))
      yield* yield* Wipe
      // The day was read before the request was in the ledger, and the total after it.
      yield* load(claims, { day: 0 })
      yield* TestClock.adjust("20 seconds")
      yield* load(claims, { total: 100 })
      const settle = Effect.map(meter.settle(a, 10), ({ budgets }) => budgets.day?.remaining)
      const left = yield* Effect.all([settle, settle], { concurrency: "unbounded" })
      assert.deepStrictEqual(left, [20, 30])
    })

    test("when there is an extra budget, then what is used counts against it first, and at its end the budgets are as before", function* () {
      const meter = yield* Meter
      const day = 86_400_000
      const extra = { tokens: 50, upTo: 1000 + 50, until: noon + 2 * day }
      const claims = claimsOf({ budgets: { day: 10, extra } })
      const of = (date: string, tokens: number) =>
        meter.load(claims.account, [
          { counter: date, tokens },
          { counter: "total", tokens: 1000 }
        ])
      const leftToday = Effect.map(left(claims), ({ budgets }) => budgets.day)
      assert.instanceOf(yield* reserve(claims, ask("a", 1)), Missing)
      // The budget of the day was used up before.
      yield* of("2026-11-21", 10)
      assert.deepStrictEqual(yield* leftToday, { limit: 50, remaining: 50 })
      yield* meter.settle(yield* take(claims, ask("b", 30)), 30)
      assert.deepStrictEqual(yield* leftToday, { limit: 20, remaining: 20 })
      // A request that runs at midnight is in the total, and not in the next day.
      yield* TestClock.setTime(noon + day / 2 - 1000)
      const night = yield* take(claims, ask("c", 15))
      yield* TestClock.setTime(noon + day / 2 + 1000)
      yield* of("2026-11-22", 0)
      assert.deepStrictEqual(yield* leftToday, { limit: 15, remaining: 15 })
      yield* meter.settle(night, 5)
      assert.deepStrictEqual(yield* leftToday, { limit: 25, remaining: 25 })
      const last = yield* take(claims, ask("d", 100))
      assert.strictEqual(last.held, 25)
      assert.deepInclude(refused(yield* reserve(claims, ask("e", 1))), {
        by: "day",
        limit: 25,
        isSpent: false
      })
      yield* meter.settle(last, 20)
      assert.strictEqual((yield* leftToday)?.remaining, 5)
      // Its end: 20 of 10 are spent.
      yield* TestClock.setTime(extra.until)
      yield* of("2026-11-23", 20)
      assert.deepInclude(refused(yield* reserve(claims, ask("f", 1))), {
        by: "day",
        limit: 10,
        isSpent: true
      })
    })

    test("when a request runs over midnight, then it belongs to the day and month of its admission", function* () {
      const meter = yield* Meter
      yield* TestClock.setTime(Date.UTC(2026, 11, 1) - 100)
      const claims = claimsOf({ budgets: { day: 100, month: 1000 } })
      const of = (day: string, month: string) =>
        meter.load(claims.account, [
          { counter: day, tokens: 0 },
          { counter: month, tokens: 0 }
        ])
      yield* of("2026-11-30", "2026-11")
      const a = yield* take(claims, ask("a", 40))
      const b = yield* take(claims, ask("b", 20))
      yield* TestClock.adjust("5 seconds")
      const after = new Missing({
        instant: Date.UTC(2026, 11, 1),
        counters: { day: "2026-12-01", month: "2026-12" }
      })
      assert.deepStrictEqual(yield* meter.peek(claims), after)
      yield* of("2026-12-01", "2026-12")
      assert.deepStrictEqual(granted(yield* reserve(claims, ask("a", 40))).reservation, a)
      yield* meter.cancel({ id: b.id, claims })
      yield* meter.renew(a, 10, 70)
      assert.strictEqual((yield* meter.settle(a, 65)).budgets.day?.remaining, 35)
      const today = yield* left(claims)
      assert.deepStrictEqual([today.budgets.day?.remaining, today.budgets.month?.remaining], [100, 1000])
    })

    test("when amounts are the largest, then they are exact", function* () {
      const meter = yield* Meter
      const most = Number.MAX_SAFE_INTEGER
      const claims = claimsOf({ budgets: { total: most } })
      yield* load(claims, { total: most - 7 })
      const a = yield* take(claims, ask("a", 5))
      assert.strictEqual((yield* left(claims)).budgets.total?.remaining, 2)
      assert.strictEqual((yield* meter.settle(a, 6)).budgets.total?.remaining, 1)
    })

    test("when accounts and groups have any names, then they do not mix", function* () {
      const names: ReadonlyArray<Account> = [
        { group: "a", key: "b" },
        { group: "a", key: "c" },
        { group: "{a}", key: "b" },
        { group: "b", key: "a" }
      ]
      for (const [i, account] of names.entries()) {
        const claims = claimsOf({ rpm: 1 }, account)
        yield* take(claims, ask(`n${i}`))
        assert.strictEqual((yield* left(claims)).requests.remaining, 0)
      }
    })
  })

  describe(`${name}: after the store forgot everything`, () => {
    test("when the store forgot a running request, then renewing stores slot and hold again, and no totals", function* () {
      const meter = yield* Meter
      const claims = claimsOf({ concurrent: 1, tpm: 100, budgets: { day: 1000 } })
      yield* load(claims, { day: 0 })
      const a = yield* take(claims, ask("a", 40))
      yield* yield* Wipe
      assert.deepStrictEqual(yield* meter.renew(a, 10, 40), { held: 40, exhausted: false })
      // Nothing more is given on a total that nobody knows, but nothing says that it is spent.
      assert.deepStrictEqual(yield* meter.renew(a, 10, 70), { held: 40, exhausted: false })
      assert.deepStrictEqual(
        yield* meter.peek(claims),
        new Missing({ instant: Date.UTC(2026, 10, 21), counters: { day: buckets.day } })
      )
      const free = claimsOf({ concurrent: 1, tpm: 100 })
      assert.strictEqual(refused(yield* reserve(free, ask("b"))).by, "concurrency")
      assert.strictEqual((yield* left(free)).tokens.remaining, 60)
      const after = yield* meter.settle(a, 25)
      assert.deepStrictEqual([after.tokens.remaining, after.budgets], [75, {}])
      assert.strictEqual((yield* take(free, ask("b"))).held, 0)
    })

    test("when a total is rebuilt while a request runs, then it is not below the truth when the request ends", function* () {
      const meter = yield* Meter
      const claims = claimsOf({ budgets: { day: 1000 } })
      // Whether the ledger that was read had the request open, closed, or not yet; and what it used.
      for (const [i, used] of [0, 25, 40, 70].entries()) {
        for (const age of [0, 5, 60]) {
          for (const seen of age > 10 ? [40, used] : [0, 40, used]) {
            for (const renewed of [false, true]) {
              yield* yield* Wipe
              yield* load(claims, { day: 0 })
              const a = yield* take(claims, ask(`a${i}-${age}-${seen}-${renewed}`, 40))
              yield* TestClock.adjust(`${age} seconds`)
              yield* yield* Wipe
              yield* load(claims, { day: seen })
              if (renewed) yield* meter.renew(a, Math.min(used, 40), 40)
              const spent = 1000 - ((yield* meter.settle(a, used)).budgets.day?.remaining ?? 0)
              assert.isAtLeast(spent, used, `used ${used}, ${age} s before the load, which saw ${seen}`)
              assert.isAtMost(spent, seen + Math.max(40, used))
            }
          }
        }
      }
    })

    test("when the store forgot a request, then its settle counts once all the same", function* () {
      const meter = yield* Meter
      const claims = claimsOf({ tpm: 100, budgets: { day: 1000 } })
      yield* load(claims, { day: 0 })
      const a = yield* take(claims, ask("a", 40))
      yield* TestClock.adjust("1 minute")
      yield* yield* Wipe
      yield* load(claims, { day: 40 })
      for (let i = 0; i < 3; i++) yield* meter.settle(a, 60)
      const headroom = yield* left(claims)
      assert.deepStrictEqual([headroom.tokens.remaining, headroom.budgets.day?.remaining], [40, 940])
    })
  })

  describe(`${name}: repair`, () => {
    const spent = (claims: Claims) =>
      Effect.map(left(claims), ({ budgets: { total } }) => 1000 - (total?.remaining ?? 0))

    test("when a request came and went after the survey, then nothing is repaired", function* () {
      const meter = yield* Meter
      const claims = claimsOf({ budgets: { total: 1000 } })
      yield* load(claims, { total: 100 })
      yield* meter.settle(yield* take(claims, ask("before", 10)), 0)
      const { mark } = yield* meter.snapshot(claims.account, noon)
      yield* meter.settle(yield* take(claims, ask("a", 30)), 25)
      assert.isFalse(yield* meter.repair(claims.account, noon, mark, { total: 100 }))
      assert.strictEqual(yield* spent(claims), 125)
    })

    test("when a request runs, or its hold is left after its lease, then nothing is repaired", function* () {
      const meter = yield* Meter
      const claims = claimsOf({ budgets: { total: 1000 } })
      yield* load(claims, { total: 100 })
      const a = yield* take(claims, ask("a", 30))
      const running = yield* meter.snapshot(claims.account, noon)
      assert.deepStrictEqual([running.totals, running.open], [{ total: 130 }, 1])
      assert.isFalse(yield* meter.repair(claims.account, noon, running.mark, { total: 0 }))
      yield* TestClock.adjust("30 seconds")
      const ended = yield* meter.snapshot(claims.account, noon)
      assert.deepStrictEqual([ended.open, ended.lapsed], [0, ["a"]])
      assert.isFalse(yield* meter.repair(claims.account, noon, ended.mark, { total: 100 }))
      assert.strictEqual(yield* spent(claims), 130)
      yield* meter.settle(a, 5)
      const { mark } = yield* meter.snapshot(claims.account, noon)
      assert.isTrue(yield* meter.repair(claims.account, noon, mark, { total: 140 }))
      yield* meter.settle(a, 5)
      assert.strictEqual(yield* spent(claims), 140)
    })
  })
}

/** `layer`: a Meter behind a queue in which requests wait up to `queueWaitMs`. */
export const queueing = (name: string, layer: () => Layer.Layer<Meter | Wipe>): void => {
  const test = atNoon(layer)

  describe(`${name}: behind a queue`, () => {
    test("when a request waited in the queue while its counter was loaded, then it is charged in full, because the ledger did not have it", function* () {
      const meter = yield* Meter
      const claims = claimsOf({ budgets: { day: 1000 } })
      yield* load(claims, { day: 0 })
      const a = yield* take(claims, ask("a", 40))
      yield* TestClock.adjust("25 seconds")
      yield* yield* Wipe
      yield* load(claims, { day: 0 })
      assert.strictEqual((yield* meter.settle(a, 25)).budgets.day?.remaining, 975)
    })
  })
}

export const queueWaitMs = 30_000
