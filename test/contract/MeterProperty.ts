/**
 * Random interleavings of all verbs against the plain model: several requests, repeats, late calls, steps of
 * time across windows, leases and the end of a day and month, limits and budgets that change between calls, and several
 * calls of one verb in one turn of the event loop.
 */
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, type Layer, Result } from "effect"
import { TestClock } from "effect/testing"
import fc from "fast-check"
import { dayOf, monthOf } from "../../src/domain/Calendar.ts"
import { Meter, type Verdict } from "../../src/gates/meter/Meter.ts"
import type { Claims, Reservation } from "../../src/domain/Reservation.ts"
import { leaseS, type Wipe } from "./Meter.ts"
import { MeterModel, type ModelVerdict } from "./MeterModel.ts"

/** Three minutes before the end of November. */
const eve = Date.UTC(2026, 11, 1) - 180_000

const amount = fc.integer({ min: 0, max: 60 })
const which = fc.integer({ min: 0, max: 7 })
/** The requests of one turn; one may come twice. */
const turn = fc.array(which, { minLength: 2, maxLength: 6 })
const budgets = fc.record(
  {
    day: fc.integer({ min: 0, max: 200 }),
    month: fc.integer({ min: 0, max: 300 }),
    total: fc.integer({ min: 0, max: 400 })
  },
  { requiredKeys: [] }
)
const terms = fc.record({
  limits: fc.record({
    rpm: fc.integer({ min: 1, max: 8 }),
    tpm: fc.integer({ min: 1, max: 200 }),
    concurrent: fc.integer({ min: 1, max: 5 })
  }),
  budgets,
  tenantBudgets: budgets
})

const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      verb: fc.constant("reserve"),
      which,
      terms,
      tokens: amount,
      least: fc.constantFrom(0, 0, 7, 30),
      slot: fc.boolean()
    })
  },
  {
    weight: 4,
    arbitrary: fc.record({
      verb: fc.constant("renew"),
      which,
      used: amount,
      want: fc.integer({ min: 0, max: 120 })
    })
  },
  {
    weight: 3,
    arbitrary: fc.record({ verb: fc.constant("settle"), which, used: amount, keepSlot: fc.boolean() })
  },
  { weight: 2, arbitrary: fc.record({ verb: fc.constantFrom("renewSlot", "freeSlot"), which }) },
  {
    weight: 3,
    arbitrary: fc.record({
      verb: fc.constant("reserveAll"),
      whole: turn,
      terms,
      tokens: amount,
      slot: fc.boolean()
    })
  },
  {
    weight: 2,
    arbitrary: fc.record({
      verb: fc.constant("settleAll"),
      whole: turn,
      used: amount,
      keepSlot: fc.boolean()
    })
  },
  { weight: 1, arbitrary: fc.record({ verb: fc.constant("cancel"), which, terms }) },
  { weight: 1, arbitrary: fc.record({ verb: fc.constant("peek"), which, terms }) },
  {
    weight: 4,
    arbitrary: fc.record({
      verb: fc.constant("wait"),
      ms: fc.constantFrom(1, 999, 5999, 6000, 15_000, 29_999, 30_000, 60_000, 66_000)
    })
  }
)
type Step = typeof step extends fc.Arbitrary<infer A> ? A : never

const plain = (verdict: Verdict): unknown => ({ ...verdict })

/** Those with the same key follow each other, in the order of the first of them: as one command decides them. */
const inSections = <A>(items: ReadonlyArray<A>, keyOf: (item: A) => unknown): ReadonlyArray<A> => {
  const sections = new Map<string, Array<A>>()
  for (const item of items) {
    const key = JSON.stringify(keyOf(item))
    sections.set(key, [...(sections.get(key) ?? []), item])
  }
  return [...sections.values()].flat()
}

const play = Effect.fnUntraced(function* (steps: ReadonlyArray<Step>, run: number) {
  const meter = yield* Meter
  /** Two accounts of one group: requests with an even number are of the first. */
  const group: Array<MeterModel> = []
  const models = [new MeterModel(leaseS, group), new MeterModel(leaseS, group)] as const
  const keys = ["k", "l"] as const
  const accountAt = (which: number) => ({ group: `g${run}`, key: keys[which % 2 === 0 ? 0 : 1] })
  const modelAt = (which: number) => models[which % 2 === 0 ? 0 : 1]
  const claimsFor = (terms: Omit<Claims, "account">, which: number): Claims => ({
    account: accountAt(which),
    ...terms
  })
  const grips = new Map<number, Reservation>()
  yield* TestClock.setTime(eve)

  // What the Budget does when it meets a new day; a total that exists must not mind.
  const begin = Effect.gen(function* () {
    const now = yield* Clock.currentTimeMillis
    const counters = [dayOf(now), monthOf(now), "total"].map((counter) => ({ counter, tokens: 0 }))
    for (const owner of [accountAt(0), accountAt(1), { group: `g${run}` }]) yield* meter.load(owner, counters)
  })
  yield* begin

  for (const [i, action] of steps.entries()) {
    const now = yield* Clock.currentTimeMillis
    const told = `step ${i}: ${JSON.stringify(action)}`
    switch (action.verb) {
      case "reserve": {
        const claims = claimsFor(action.terms, action.which)
        const { least, slot, tokens } = action
        const ask = { id: `${run}-${action.which}`, tokens, least, slot }
        const expected: ModelVerdict = modelAt(action.which).reserve(claims, ask, now)
        const actual = yield* Effect.result(meter.reserve(claims, ask))
        if (Result.isFailure(actual)) assert.strictEqual(expected._tag, "Over", told)
        else assert.deepStrictEqual(plain(actual.success), { ...expected }, told)
        if (expected._tag === "Reserved" && !grips.has(action.which))
          grips.set(action.which, expected.reservation)
        break
      }
      case "renew": {
        const grip = grips.get(action.which)
        if (grip === undefined) break
        const actual = yield* meter.renew(grip, action.used, action.want)
        assert.deepStrictEqual(actual, modelAt(action.which).renew(grip, action.used, action.want, now), told)
        break
      }
      case "settle": {
        const grip = grips.get(action.which)
        if (grip === undefined) break
        assert.deepStrictEqual(
          yield* meter.settle(grip, action.used, action),
          modelAt(action.which).settle(grip, action.used, action.keepSlot, now),
          told
        )
        break
      }
      case "reserveAll": {
        const { slot, tokens } = action
        // A request of another day is asked for again with that day, and then comes after the others.
        const ofToday = action.whole.filter((which) => {
          const grip = grips.get(which)
          return grip === undefined || dayOf(grip.admittedAt) === dayOf(now)
        })
        const asked = inSections(ofToday, (which) => which % 2).map((which) => ({
          which,
          claims: claimsFor(action.terms, which),
          ask: { id: `${run}-${which}`, tokens, slot }
        }))
        const expected = asked.map(({ ask, claims, which }): ModelVerdict =>
          modelAt(which).reserve(claims, ask, now)
        )
        // Now and then one of them asks whether the store is fit, and then comes after the others.
        yield* meter.ping
        const actual = yield* Effect.forEach(
          asked,
          ({ ask, claims }) => Effect.result(meter.reserve(claims, ask)),
          { concurrency: "unbounded" }
        )
        actual.forEach((one, n) => {
          if (Result.isFailure(one)) assert.strictEqual(expected[n]?._tag, "Over", told)
          else assert.deepStrictEqual(plain(one.success), { ...expected[n] }, told)
        })
        expected.forEach((verdict, n) => {
          const which = asked[n]?.which
          if (verdict._tag === "Reserved" && which !== undefined && !grips.has(which))
            grips.set(which, verdict.reservation)
        })
        break
      }
      case "settleAll": {
        const asked = inSections(
          action.whole.flatMap((which) => {
            const grip = grips.get(which)
            return grip === undefined ? [] : [{ which, grip }]
          }),
          ({ grip }) => [grip.claims, dayOf(grip.admittedAt)]
        )
        const expected = asked.map(({ grip, which }) =>
          modelAt(which).settle(grip, action.used, action.keepSlot, now)
        )
        const actual = yield* Effect.forEach(asked, ({ grip }) => meter.settle(grip, action.used, action), {
          concurrency: "unbounded"
        })
        assert.deepStrictEqual(actual, expected, told)
        break
      }
      case "renewSlot":
      case "freeSlot": {
        const grip = grips.get(action.which)
        if (grip === undefined) break
        yield* meter[action.verb](grip)
        modelAt(action.which)[action.verb](grip.id, now)
        break
      }
      case "cancel": {
        const id = `${run}-${action.which}`
        yield* meter.cancel({ id, claims: claimsFor(action.terms, action.which) })
        modelAt(action.which).cancel(id, now)
        break
      }
      case "peek": {
        const claims = claimsFor(action.terms, action.which)
        assert.deepStrictEqual(
          yield* meter.peek(claims),
          modelAt(action.which).headroom(claims, now, now),
          told
        )
        break
      }
      case "wait": {
        yield* TestClock.adjust(action.ms)
        yield* begin
        break
      }
    }
  }
})

export const properties = (
  name: string,
  layer: () => Layer.Layer<Meter | Wipe>,
  options: { readonly runs: number }
): void => {
  describe(`${name}: any interleaving`, () => {
    it.effect("when calls come in any order, then it answers as the model does", () =>
      Effect.gen(function* () {
        const context = yield* Effect.context<Meter | Wipe>()
        let run = 0
        yield* Effect.promise(() =>
          fc.assert(
            fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 60, size: "max" }), (steps) =>
              Effect.runPromiseWith(context)(play(steps, run++))
            ),
            { numRuns: options.runs }
          )
        )
      }).pipe(Effect.provide(layer()))
    )
  })
}
