/**
 * What every Meter has to do, by example. Time is the TestClock's on both twins; `MeterProperty.ts` adds random
 * interleavings, `Meter.live.test.ts` what only a real Redis can do wrong.
 */
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, type Layer } from "effect"
import { TestClock } from "effect/testing"
import {
  type ReserveRequest,
  Meter,
  type MeterDown,
  Missing,
  Refused,
  Reserved,
  type Verdict
} from "../../src/gates/meter/Meter.ts"
import { type Budgets, type Headroom, periods } from "../../src/domain/Limits.ts"
import type { Account, Claims, CounterOwner, Reservation } from "../../src/domain/Reservation.ts"
import type { Steps } from "../support/testWith.ts"

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

export const buckets = { day: "2026-11-21", week: "w2026-11-16", month: "2026-11", total: "total" } as const

export const ask = (id: string, tokens = 0, slot = true): ReserveRequest => ({ id, tokens, slot })

export const granted = (verdict: Verdict): Reserved => {
  assert.instanceOf(verdict, Reserved)
  return verdict
}
export const refused = (verdict: Verdict): Refused => {
  assert.instanceOf(verdict, Refused)
  return verdict
}

export const reserve = (claims: Claims, what: ReserveRequest): Effect.Effect<Verdict, MeterDown, Meter> =>
  Effect.flatMap(Meter, (meter) => meter.reserve(claims, what))

/** Whether the Meter decides nothing about a request, because it is over. */
const denied = (claims: Claims, what: ReserveRequest) =>
  reserve(claims, what).pipe(
    Effect.as(false),
    Effect.catchTag("MeterDown", () => Effect.succeed(true))
  )

export const take = (claims: Claims, what: ReserveRequest): Effect.Effect<Reservation, MeterDown, Meter> =>
  Effect.map(reserve(claims, what), (verdict) => granted(verdict).reservation)

/** What is left, without the time until it is more. */
export const amounts = ({ budgets, requests, tokens }: Headroom) => ({ budgets, requests, tokens })

export const peek = Effect.fnUntraced(function* (claims: Claims) {
  const headroom = yield* (yield* Meter).peek(claims)
  assert.notInstanceOf(headroom, Missing)
  if (headroom instanceof Missing) return yield* Effect.die("missing")
  return headroom
})

export const left = (claims: Claims) => Effect.map(peek(claims), amounts)

/** Loads counters of a group, of an account, or of a user or a model of it. */
export const loadOf = Effect.fnUntraced(function* (owner: CounterOwner, tokens: Budgets) {
  const counters = periods.flatMap((period) => {
    const amount = tokens[period]
    return amount === undefined ? [] : [{ counter: buckets[period], tokens: amount }]
  })
  yield* (yield* Meter).load(owner, counters)
})

export const load = ({ account }: Claims, tokens: Budgets) => loadOf(account, tokens)

/** Who refuses a request, and why. */
export const refusalOf = (claims: Claims, id: string, tokens = 1) =>
  Effect.map(reserve(claims, ask(id, tokens)), (verdict) => {
    const { by, limit, retryAfterS, scope } = refused(verdict)
    return [by, scope, limit, retryAfterS]
  })

/** A test on a fresh store, at noon. */
export const atNoon =
  (layer: () => Layer.Layer<Meter | Wipe>) =>
  (behaviour: string, steps: Steps<Meter | Wipe>): void =>
    it.effect(behaviour, () =>
      Effect.andThen(TestClock.setTime(noon), Effect.gen(steps)).pipe(Effect.provide(layer()))
    )

export const suite = (name: string, layer: () => Layer.Layer<Meter | Wipe>): void => {
  const test = atNoon(layer)

  describe(`${name}: windows`, () => {
    test("when the request window is full, then a retry before Retry-After is refused and one at it is admitted", function* () {
      const claims = claimsOf({ rpm: 2 })
      yield* take(claims, ask("a"))
      yield* TestClock.adjust("10 seconds")
      yield* take(claims, ask("b"))
      const { by, limit, retryAfterS } = refused(yield* reserve(claims, ask("c")))
      assert.deepStrictEqual([by, limit, retryAfterS], ["requests", 2, 50])
      yield* TestClock.adjust("49999 millis")
      assert.strictEqual(refused(yield* reserve(claims, ask("c"))).retryAfterS, 1)
      yield* TestClock.adjust("1 millis")
      assert.isTrue((yield* take(claims, ask("c"))).slot)
    })

    test("when the token window is full, with a hold beside used tokens, then Retry-After is exact", function* () {
      const meter = yield* Meter
      const claims = claimsOf({ tpm: 100 })
      yield* meter.settle(yield* take(claims, ask("a", 60)), 60)
      const b = yield* take(claims, ask("b", 40))
      yield* TestClock.adjust("10 seconds")
      const { by, retryAfterS } = refused(yield* reserve(claims, ask("c", 1)))
      assert.deepStrictEqual([by, retryAfterS], ["tokens", 50])
      for (const ms of [19_000, 29_000, 1999]) {
        yield* TestClock.adjust(ms)
        yield* meter.renew(b, 0, 40)
      }
      assert.strictEqual(refused(yield* reserve(claims, ask("c", 1))).by, "tokens")
      yield* TestClock.adjust("1 millis")
      assert.deepInclude(yield* take(claims, ask("c", 1)), { held: 1, available: 60 })
    })

    test("when a request asks for no tokens, then it is not refused for lack of them", function* () {
      const claims = claimsOf({ tpm: 10, budgets: { day: 10 } })
      yield* load(claims, { day: 10 })
      yield* (yield* Meter).settle(yield* take(claimsOf({ tpm: 10 }), ask("a", 10)), 10)
      assert.strictEqual((yield* take(claims, ask("b", 0, false))).held, 0)
    })

    test("when a request is refused, then nothing is consumed", function* () {
      const claims = claimsOf({ rpm: 10, tpm: 50, concurrent: 1, budgets: { day: 100 } })
      yield* load(claims, { day: 0 })
      yield* take(claims, ask("a", 20))
      const before = yield* left(claims)
      for (let i = 0; i < 20; i++) {
        const verdict = refused(yield* reserve(claims, ask(`r${i}`, 5)))
        assert.deepStrictEqual([verdict.by, verdict.retryAfterS], ["concurrency", 1])
        assert.deepStrictEqual(amounts(verdict.headroom), before)
      }
      assert.deepStrictEqual(yield* left(claims), before)
    })

    test("when a limit is lowered below what is used, then 0 is left and not less", function* () {
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
    })
  })

  describe(`${name}: a clock that goes back`, () => {
    test("when the clock goes back, then what is in the windows counts as recent, and no lease is longer than a lease", function* () {
      const meter = yield* Meter
      const claims = claimsOf({ rpm: 2, tpm: 100, concurrent: 2 })
      const a = yield* take(claims, ask("a", 40))
      yield* meter.settle(a, 40)
      yield* TestClock.adjust("30 seconds")
      yield* take(claims, ask("b", 10))
      yield* TestClock.setTime(noon - 3_600_000)
      const { by, retryAfterS } = refused(yield* reserve(claims, ask("c")))
      assert.deepStrictEqual([by, retryAfterS], ["requests", 60])
      assert.strictEqual((yield* left(claims)).tokens.remaining, 50)
      const wide = claimsOf({ ...claims.limits, rpm: 9 })
      yield* take(wide, ask("c"))
      assert.strictEqual(refused(yield* reserve(wide, ask("d"))).by, "concurrency")
      yield* TestClock.adjust("30 seconds")
      // The slot of "b" is free, and what it holds is not.
      assert.strictEqual((yield* take(wide, ask("d"))).available, 50)
      yield* TestClock.adjust("30 seconds")
      assert.strictEqual((yield* left(claims)).tokens.remaining, 90)
    })

    test("when the clock goes back to a time between two requests, then both leave the window", function* () {
      const meter = yield* Meter
      const claims = claimsOf({ rpm: 9, tpm: 100, concurrent: 2 })
      yield* meter.settle(yield* take(claims, ask("a", 10)), 10)
      yield* TestClock.adjust("30 seconds")
      yield* meter.settle(yield* take(claims, ask("b", 20)), 20)
      const remaining = Effect.map(left(claims), ({ requests, tokens }) => [
        requests.remaining,
        tokens.remaining
      ])
      yield* TestClock.setTime(noon + 10_000)
      assert.deepStrictEqual(yield* remaining, [7, 70])
      // From now on "b" counts as of this time.
      yield* meter.settle(yield* take(claims, ask("c", 5)), 5)
      yield* TestClock.adjust("50 seconds")
      assert.deepStrictEqual(yield* remaining, [7, 75])
      yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(yield* remaining, [9, 100])
    })
  })

  describe(`${name}: once per request id`, () => {
    test("when a settle is repeated or followed by others, then it counts once", function* () {
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
      assert.deepStrictEqual(yield* left(claims), amounts(after))
    })

    test("when a request is cancelled, then nothing of it is left, renewed tokens and its place in the window included", function* () {
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
    })

    test("when counts are nonsense, then nothing becomes wrong", function* () {
      const meter = yield* Meter
      const claims = claimsOf({ tpm: 100, budgets: { day: 100 } })
      yield* load(claims, { day: 0 })
      yield* meter.settle(yield* take(claims, ask("a", 30)), -50)
      assert.strictEqual((yield* left(claims)).budgets.day?.remaining, 100)
      yield* meter.settle(yield* take(claims, ask("b", 2.5)), 3.2)
      assert.strictEqual((yield* left(claims)).budgets.day?.remaining, 96)
      yield* meter.settle(yield* take(claims, ask("c", 1)), 1e300)
      assert.strictEqual((yield* left(claims)).budgets.day?.remaining, 0)
    })
  })
}
