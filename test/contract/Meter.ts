/**
 * What every Meter has to do, by example. Time is the TestClock's on both twins; `MeterProperty.ts` adds random
 * interleavings, `Meter.live.test.ts` what only a real Redis can do wrong.
 */
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, type Layer } from "effect"
import { TestClock } from "effect/testing"
import {
  type Account,
  type Ask,
  type Claims,
  Meter,
  type MeterDown,
  Missing,
  Refused,
  type Reservation,
  Reserved,
  type Verdict
} from "../../src/gates/Meter/Meter.ts"

/** Makes the store forget everything, as a FLUSHALL or a restart would. */
export class Wipe extends Context.Service<Wipe, Effect.Effect<void>>()("test/contract/Wipe") {}

export const leaseS = 30
export const noon = Date.UTC(2026, 10, 21, 12)

export interface Terms {
  readonly rpm?: number
  readonly tpm?: number
  readonly concurrent?: number
  readonly budgets?: Claims["budgets"]
}

export const claimsOf = (terms: Terms, account: Account = { group: "g", key: "k" }): Claims => ({
  account,
  limits: { rpm: terms.rpm ?? 1000, tpm: terms.tpm ?? 100_000, concurrent: terms.concurrent ?? 100 },
  budgets: terms.budgets ?? {}
})

const buckets = { day: "2026-11-21", month: "2026-11", total: "total" } as const

const ask = (id: string, tokens = 0, slot = true): Ask => ({ id, tokens, slot })

export const granted = (verdict: Verdict): Reserved => {
  assert.instanceOf(verdict, Reserved)
  return verdict
}
const refused = (verdict: Verdict): Refused => {
  assert.instanceOf(verdict, Refused)
  return verdict
}

const reserve = (claims: Claims, what: Ask): Effect.Effect<Verdict, MeterDown, Meter> =>
  Effect.flatMap(Meter, (meter) => meter.reserve(claims, what))

/** Whether the Meter decides nothing about a request, because it is over. */
const denied = (claims: Claims, what: Ask) =>
  reserve(claims, what).pipe(
    Effect.as(false),
    Effect.catchTag("MeterDown", () => Effect.succeed(true))
  )

const take = (claims: Claims, what: Ask): Effect.Effect<Reservation, MeterDown, Meter> =>
  Effect.map(reserve(claims, what), (verdict) => granted(verdict).reservation)

const left = Effect.fnUntraced(function* (claims: Claims) {
  const headroom = yield* (yield* Meter).peek(claims)
  assert.notInstanceOf(headroom, Missing)
  if (headroom instanceof Missing) return yield* Effect.die("missing")
  return headroom
})

const load = Effect.fnUntraced(function* (
  claims: Claims,
  tokens: { day?: number; month?: number; total?: number }
) {
  const meter = yield* Meter
  yield* meter.load(claims.account, [
    ...(tokens.day === undefined ? [] : [{ bucket: buckets.day, tokens: tokens.day }]),
    ...(tokens.month === undefined ? [] : [{ bucket: buckets.month, tokens: tokens.month }]),
    ...(tokens.total === undefined ? [] : [{ bucket: buckets.total, tokens: tokens.total }])
  ])
})

export const suite = (name: string, layer: () => Layer.Layer<Meter | Wipe>): void => {
  const test = (behaviour: string, body: () => Effect.Effect<void, MeterDown, Meter | Wipe>) =>
    it.effect(behaviour, () => Effect.andThen(TestClock.setTime(noon), body()).pipe(Effect.provide(layer())))

  describe(`${name}: windows`, () => {
    test("admits no more than rpm in any 60 seconds, and says when the next could pass", () =>
      Effect.gen(function* () {
        const claims = claimsOf({ rpm: 5 })
        yield* TestClock.setTime(noon + 5999)
        const admitted: Array<number> = []
        for (let s = 0; s < 400; s++) {
          const verdict = yield* reserve(claims, ask(`r${s}`))
          if (verdict instanceof Reserved) {
            admitted.push(s)
            yield* (yield* Meter).settle(verdict.reservation, 0)
          }
          yield* TestClock.adjust("1 second")
        }
        for (const s of admitted) {
          assert.isAtMost(admitted.filter((other) => other >= s && other < s + 60).length, 5)
        }
        assert.isAtLeast(admitted.length, 30)
      }))

    test("Retry-After of a full request window is kept: refused a moment before, admitted at it", () =>
      Effect.gen(function* () {
        const claims = claimsOf({ rpm: 2 })
        yield* take(claims, ask("a"))
        yield* TestClock.adjust("10 seconds")
        yield* take(claims, ask("b"))
        const { by, limit, retryAfterS } = refused(yield* reserve(claims, ask("c")))
        assert.deepStrictEqual([by, limit, retryAfterS], ["requests", 2, 56])
        yield* TestClock.adjust("55999 millis")
        assert.strictEqual(refused(yield* reserve(claims, ask("c"))).retryAfterS, 1)
        yield* TestClock.adjust("1 millis")
        assert.isTrue((yield* take(claims, ask("c"))).slot)
      }))

    test("used tokens count for 60 seconds from their use, held ones until then", () =>
      Effect.gen(function* () {
        const meter = yield* Meter
        const claims = claimsOf({ tpm: 100 })
        const a = yield* take(claims, ask("a", 80))
        for (let i = 0; i < 9; i++) {
          yield* TestClock.adjust("20 seconds")
          yield* meter.renew(a, 0, 80)
        }
        assert.strictEqual((yield* left(claims)).tokens.remaining, 20)
        yield* meter.settle(a, 70)
        assert.strictEqual((yield* left(claims)).tokens.remaining, 30)
        yield* TestClock.adjust("59 seconds")
        assert.strictEqual((yield* left(claims)).tokens.remaining, 30)
        yield* TestClock.adjust("7 seconds")
        assert.strictEqual((yield* left(claims)).tokens.remaining, 100)
      }))

    test("a hold is clipped to the smallest remainder, and with nothing left tokens are refused", () =>
      Effect.gen(function* () {
        const claims = claimsOf({ tpm: 100, budgets: { total: 1000 } })
        yield* load(claims, { total: 930 })
        const a = yield* take(claims, ask("a", 50))
        assert.deepStrictEqual([a.held, a.available], [50, 70])
        const b = yield* take(claims, ask("b", 50))
        assert.deepStrictEqual([b.held, b.available], [20, 20])
        const { by, retryAfterS, limit } = refused(yield* reserve(claims, ask("c", 1)))
        assert.deepStrictEqual([by, limit, retryAfterS], ["total", 1000, 86_400])
        const tight = claimsOf({ tpm: 70, budgets: { total: 2000 } })
        assert.strictEqual(refused(yield* reserve(tight, ask("c", 1))).by, "tokens")
      }))

    test("a request that asks for no tokens is not refused for lack of them", () =>
      Effect.gen(function* () {
        const claims = claimsOf({ tpm: 10, budgets: { day: 10 } })
        yield* load(claims, { day: 10 })
        yield* (yield* Meter).settle(yield* take(claimsOf({ tpm: 10 }), ask("a", 10)), 10)
        assert.strictEqual((yield* take(claims, ask("b", 0, false))).held, 0)
      }))

    test("the order of refusal is requests, tokens, concurrency, budgets", () =>
      Effect.gen(function* () {
        const full = { rpm: 1, tpm: 10, concurrent: 1, budgets: { day: 10 } }
        yield* load(claimsOf(full), { day: 0 })
        yield* take(claimsOf(full), ask("a", 10))
        const by = (terms: Terms) =>
          Effect.map(reserve(claimsOf({ ...full, ...terms }), ask("b", 1)), (verdict) => refused(verdict).by)
        assert.strictEqual(yield* by({}), "requests")
        assert.strictEqual(yield* by({ rpm: 9 }), "tokens")
        assert.strictEqual(yield* by({ rpm: 9, tpm: 99 }), "concurrency")
        assert.strictEqual(yield* by({ rpm: 9, tpm: 99, concurrent: 9 }), "day")
      }))

    test("a refusal consumes nothing", () =>
      Effect.gen(function* () {
        const claims = claimsOf({ rpm: 10, tpm: 50, concurrent: 1, budgets: { day: 100 } })
        yield* load(claims, { day: 0 })
        yield* take(claims, ask("a", 20))
        const before = yield* left(claims)
        for (let i = 0; i < 20; i++) {
          const verdict = refused(yield* reserve(claims, ask(`r${i}`, 5)))
          assert.deepStrictEqual([verdict.by, verdict.retryAfterS], ["concurrency", 1])
          assert.deepStrictEqual(verdict.headroom, before)
        }
        assert.deepStrictEqual(yield* left(claims), before)
      }))

    test("of many at the same instant no more than the limit get through", () =>
      Effect.gen(function* () {
        const claims = claimsOf({ rpm: 7 })
        const verdicts = yield* Effect.forEach(
          Array.from({ length: 100 }, (_, i) => i),
          (i) => reserve(claims, ask(`p${i}`)),
          {
            concurrency: "unbounded"
          }
        )
        assert.strictEqual(verdicts.filter((verdict) => verdict instanceof Reserved).length, 7)
      }))

    test("limits lowered below what is used leave 0, not less", () =>
      Effect.gen(function* () {
        const wide = claimsOf({ tpm: 100, concurrent: 3, budgets: { month: 500 } })
        yield* load(wide, { month: 0 })
        const a = yield* take(wide, ask("a", 90))
        yield* take(wide, ask("b", 5))
        const narrow = claimsOf({ rpm: 1, tpm: 10, concurrent: 1, budgets: { month: 20 } })
        const headroom = yield* left(narrow)
        assert.deepStrictEqual(headroom, {
          requests: { limit: 1, remaining: 0 },
          tokens: { limit: 10, remaining: 0 },
          budgets: { month: { limit: 20, remaining: 0 } }
        })
        const after = yield* (yield* Meter).settle({ ...a, claims: narrow }, 7)
        assert.strictEqual(after.budgets.month?.remaining, 8)
      }))
  })

  describe(`${name}: leases`, () => {
    test("a slot nobody renews is free when its lease ends, and so is the hold in the window", () =>
      Effect.gen(function* () {
        const meter = yield* Meter
        const claims = claimsOf({ concurrent: 1, tpm: 100, budgets: { day: 1000 } })
        yield* load(claims, { day: 0 })
        const a = yield* take(claims, ask("a", 60))
        yield* TestClock.adjust("29999 millis")
        assert.strictEqual(refused(yield* reserve(claims, ask("b", 10))).by, "concurrency")
        yield* TestClock.adjust("1 millis")
        const headroom = yield* left(claims)
        assert.deepStrictEqual([headroom.tokens.remaining, headroom.budgets.day?.remaining], [100, 940])
        yield* take(claims, ask("b", 10))
        // The reconciler comes late; it is exact all the same, once.
        for (let i = 0; i < 3; i++) yield* meter.settle(a, 25)
        const after = yield* left(claims)
        assert.deepStrictEqual([after.tokens.remaining, after.budgets.day?.remaining], [65, 965])
      }))

    test("a renewed slot stays taken, for as long as it is renewed", () =>
      Effect.gen(function* () {
        const meter = yield* Meter
        const claims = claimsOf({ concurrent: 1 })
        const a = yield* take(claims, ask("a", 10))
        for (let i = 0; i < 30; i++) {
          yield* TestClock.adjust("20 seconds")
          yield* meter.renew(a, 0, 10)
          assert.strictEqual(refused(yield* reserve(claims, ask(`b${i}`, 1))).by, "concurrency")
        }
        yield* meter.settle(a, 10)
        assert.strictEqual((yield* take(claims, ask("c", 1))).held, 1)
      }))

    test("renewing takes more while there is more, and says when there is none", () =>
      Effect.gen(function* () {
        const meter = yield* Meter
        const claims = claimsOf({ tpm: 1000, budgets: { day: 100 } })
        yield* load(claims, { day: 0 })
        const a = yield* take(claims, ask("a", 30))
        assert.deepStrictEqual(yield* meter.renew(a, 10, 20), { held: 30, exhausted: false })
        assert.deepStrictEqual(yield* meter.renew(a, 20, 80), { held: 80, exhausted: false })
        const b = yield* take(claims, ask("b", 15))
        assert.deepStrictEqual(yield* meter.renew(a, 60, 200), { held: 85, exhausted: true })
        assert.strictEqual((yield* left(claims)).budgets.day?.remaining, 0)
        yield* meter.settle(b, 0)
        assert.deepStrictEqual(yield* meter.renew(a, 85, 200), { held: 100, exhausted: true })
        assert.strictEqual((yield* meter.settle(a, 90)).budgets.day?.remaining, 10)
        assert.strictEqual((yield* left(claims)).tokens.remaining, 910)
      }))

    test("what was noted too high is taken back at the end", () =>
      Effect.gen(function* () {
        const meter = yield* Meter
        const claims = claimsOf({ tpm: 1000 })
        const a = yield* take(claims, ask("a", 300))
        yield* meter.renew(a, 200, 300)
        yield* TestClock.adjust("7 seconds")
        yield* meter.renew(a, 250, 300)
        yield* meter.renew(a, 100, 300)
        assert.strictEqual((yield* left(claims)).tokens.remaining, 700)
        assert.strictEqual((yield* meter.settle(a, 90)).tokens.remaining, 910)
      }))
  })

  describe(`${name}: once per request id`, () => {
    test("a repeated reserve answers as the first did and takes nothing more", () =>
      Effect.gen(function* () {
        const claims = claimsOf({ rpm: 5, tpm: 100, concurrent: 2, budgets: { day: 100 } })
        yield* load(claims, { day: 40 })
        const first = granted(yield* reserve(claims, ask("a", 30)))
        assert.deepStrictEqual(first.reservation.buckets, { day: buckets.day })
        assert.strictEqual(first.reservation.admittedAt, noon)
        yield* TestClock.adjust("5 seconds")
        for (let i = 0; i < 10; i++) assert.deepStrictEqual(yield* reserve(claims, ask("a", 30)), first)
        assert.deepStrictEqual(yield* left(claims), first.headroom)
      }))

    test("a settle counts once, and verbs that come after it do nothing", () =>
      Effect.gen(function* () {
        const meter = yield* Meter
        const claims = claimsOf({ tpm: 100, concurrent: 2, budgets: { total: 100 } })
        yield* load(claims, { total: 0 })
        const a = yield* take(claims, ask("a", 30))
        const after = yield* meter.settle(a, 12)
        assert.deepStrictEqual([after.tokens.remaining, after.budgets.total?.remaining], [88, 88])
        assert.deepStrictEqual(yield* meter.settle(a, 99), after)
        assert.deepStrictEqual(yield* meter.renew(a, 50, 90), { held: 0, exhausted: true })
        yield* meter.cancel(a)
        assert.isTrue(yield* denied(claims, ask("a", 30)))
        assert.deepStrictEqual(yield* left(claims), after)
      }))

    test("a cancel leaves no trace, renewed tokens and place in the request window included", () =>
      Effect.gen(function* () {
        const meter = yield* Meter
        const claims = claimsOf({ rpm: 5, tpm: 100, concurrent: 1, budgets: { day: 500, month: 600 } })
        yield* load(claims, { day: 0, month: 10 })
        const before = yield* left(claims)
        const a = yield* take(claims, ask("a", 30))
        yield* TestClock.adjust("8 seconds")
        yield* meter.renew(a, 20, 60)
        yield* TestClock.adjust("8 seconds")
        yield* meter.renew(a, 50, 60)
        yield* meter.cancel({ id: a.id, claims })
        assert.deepStrictEqual(yield* left(claims), before)
        yield* meter.cancel({ id: a.id, claims })
        yield* meter.settle(a, 44)
        assert.deepStrictEqual(yield* left(claims), before)
      }))

    test("a reserve that arrives after its own cancel takes nothing", () =>
      Effect.gen(function* () {
        const meter = yield* Meter
        const claims = claimsOf({ rpm: 1, concurrent: 1 })
        yield* meter.cancel({ id: "late", claims })
        assert.isTrue(yield* denied(claims, ask("late", 30)))
        assert.strictEqual((yield* take(claims, ask("next", 30))).held, 30)
      }))

    test("nonsense counts change nothing for the worse", () =>
      Effect.gen(function* () {
        const meter = yield* Meter
        const claims = claimsOf({ tpm: 100, budgets: { day: 100 } })
        yield* load(claims, { day: 0 })
        yield* meter.settle(yield* take(claims, ask("a", 30)), -50)
        assert.strictEqual((yield* left(claims)).budgets.day?.remaining, 100)
        yield* meter.settle(yield* take(claims, ask("b", 2.5)), 3.2)
        assert.strictEqual((yield* left(claims)).budgets.day?.remaining, 96)
        yield* meter.settle(yield* take(claims, ask("c", 1)), 1e300)
        assert.strictEqual((yield* left(claims)).budgets.day?.remaining, 0)
      }))
  })

  describe(`${name}: totals`, () => {
    test("a total the store does not know is named, and nothing is written", () =>
      Effect.gen(function* () {
        const claims = claimsOf({ rpm: 1, budgets: { day: 10, month: 20, total: 30 } })
        const verdict = yield* reserve(claims, ask("a", 5))
        assert.deepStrictEqual(verdict, new Missing({ buckets }))
        assert.deepStrictEqual(yield* (yield* Meter).peek(claims), new Missing({ buckets }))
        yield* load(claims, { day: 0, total: 0 })
        assert.deepStrictEqual(
          yield* reserve(claims, ask("a", 5)),
          new Missing({ buckets: { month: buckets.month } })
        )
        yield* load(claims, { month: 0 })
        assert.strictEqual((yield* take(claims, ask("a", 5))).held, 5)
      }))

    test("load does not touch a total that exists", () =>
      Effect.gen(function* () {
        const claims = claimsOf({ budgets: { day: 100 } })
        yield* load(claims, { day: 70 })
        yield* take(claims, ask("a", 10))
        yield* load(claims, { day: 0 })
        assert.strictEqual((yield* left(claims)).budgets.day?.remaining, 20)
      }))

    test("a total that exists is kept up while no budget claims it", () =>
      Effect.gen(function* () {
        const claims = claimsOf({ budgets: { day: 100 } })
        yield* load(claims, { day: 0 })
        yield* (yield* Meter).settle(yield* take(claimsOf({}), ask("a", 60)), 50)
        assert.strictEqual((yield* left(claims)).budgets.day?.remaining, 50)
      }))

    test("a budget's Retry-After is the end of its period; of several that are spent the longest counts", () =>
      Effect.gen(function* () {
        const retry = Effect.fnUntraced(function* (budgets: Claims["budgets"]) {
          const { by, retryAfterS } = refused(yield* reserve(claimsOf({ budgets }), ask("a", 1)))
          return [by, retryAfterS]
        })
        yield* load(claimsOf({}), { day: 5, month: 5, total: 5 })
        assert.deepStrictEqual(yield* retry({ day: 5, month: 50, total: 50 }), ["day", 43_200])
        assert.deepStrictEqual(yield* retry({ day: 5, month: 5, total: 50 }), ["month", 43_200 + 9 * 86_400])
        assert.deepStrictEqual(yield* retry({ day: 5, month: 50, total: 0 }), ["total", 86_400])
      }))

    test("a request belongs to the day and month of its admission", () =>
      Effect.gen(function* () {
        const meter = yield* Meter
        yield* TestClock.setTime(Date.UTC(2026, 11, 1) - 100)
        const claims = claimsOf({ budgets: { day: 100, month: 1000 } })
        const of = (day: string, month: string) =>
          meter.load(claims.account, [
            { bucket: day, tokens: 0 },
            { bucket: month, tokens: 0 }
          ])
        yield* of("2026-11-30", "2026-11")
        const a = yield* take(claims, ask("a", 40))
        assert.deepStrictEqual(a.buckets, { day: "2026-11-30", month: "2026-11" })
        const b = yield* take(claims, ask("b", 20))
        yield* TestClock.adjust("5 seconds")
        const after = new Missing({ buckets: { day: "2026-12-01", month: "2026-12" } })
        assert.deepStrictEqual(yield* meter.peek(claims), after)
        yield* of("2026-12-01", "2026-12")
        assert.deepStrictEqual(granted(yield* reserve(claims, ask("a", 40))).reservation, a)
        yield* meter.cancel({ id: b.id, claims })
        yield* meter.renew(a, 10, 70)
        assert.strictEqual((yield* meter.settle(a, 65)).budgets.day?.remaining, 35)
        const today = yield* left(claims)
        assert.deepStrictEqual([today.budgets.day?.remaining, today.budgets.month?.remaining], [100, 1000])
      }))

    test("the largest amounts stay exact", () =>
      Effect.gen(function* () {
        const meter = yield* Meter
        const most = Number.MAX_SAFE_INTEGER
        const claims = claimsOf({ budgets: { total: most } })
        yield* load(claims, { total: most - 7 })
        const a = yield* take(claims, ask("a", 5))
        assert.strictEqual((yield* left(claims)).budgets.total?.remaining, 2)
        assert.strictEqual((yield* meter.settle(a, 6)).budgets.total?.remaining, 1)
      }))

    test("accounts and groups do not mix, whatever their names", () =>
      Effect.gen(function* () {
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
      }))
  })

  describe(`${name}: after the store forgot everything`, () => {
    test("renewing makes slot and hold anew, and leaves totals to the ledger", () =>
      Effect.gen(function* () {
        const meter = yield* Meter
        const claims = claimsOf({ concurrent: 1, tpm: 100, budgets: { day: 1000 } })
        yield* load(claims, { day: 0 })
        const a = yield* take(claims, ask("a", 40))
        yield* yield* Wipe
        assert.deepStrictEqual(yield* meter.renew(a, 10, 40), { held: 40, exhausted: false })
        assert.deepStrictEqual(yield* meter.peek(claims), new Missing({ buckets: { day: buckets.day } }))
        const free = claimsOf({ concurrent: 1, tpm: 100 })
        assert.strictEqual(refused(yield* reserve(free, ask("b"))).by, "concurrency")
        assert.strictEqual((yield* left(free)).tokens.remaining, 60)
        const after = yield* meter.settle(a, 25)
        assert.deepStrictEqual([after.tokens.remaining, after.budgets], [75, {}])
        assert.strictEqual((yield* take(free, ask("b"))).held, 0)
      }))

    test("a total rebuilt while a request runs is not below the truth when it ends", () =>
      Effect.gen(function* () {
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
      }))

    test("a settle that finds its request forgotten counts once all the same", () =>
      Effect.gen(function* () {
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
      }))
  })
}
