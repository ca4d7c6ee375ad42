/**
 * Random interleavings of all verbs, on a Meter and on the twin in memory, which is the definition: several requests, repeats,
 * late calls, steps of time across windows, leases and local midnights that end days, weeks and months, losses of the store, limits and
 * budgets that change between calls, extra budgets that end, and several calls of one verb in one turn of the event loop.
 */
import { assert, it } from "@effect/vitest"
import { Clock, Effect, Layer, Struct } from "effect"
import { TestClock } from "effect/testing"
import fc from "fast-check"
import { type Calendar, TimeZone } from "../../src/domain/Calendar.ts"
import type { Budgets } from "../../src/domain/Limits.ts"
import type { Account, Claims, CounterOwner, Reservation } from "../../src/domain/Reservation.ts"
import { makeMemory } from "../../src/gates/meter/memory/layer.ts"
import { MemoryMeter } from "../../src/gates/meter/memory/MemoryMeter.ts"
import { Meter } from "../../src/gates/meter/Meter.ts"
import { midnights } from "../support/midnights.ts"
import { leaseS, Wipe } from "./Meter.ts"
import { testWith } from "../support/testWith.ts"

/** Each run begins three minutes before a local midnight. */
const before = 180_000

const amount = fc.integer({ min: 0, max: 60 })
const which = fc.integer({ min: 0, max: 7 })
/** The requests of one turn; one may come twice. */
const turn = fc.array(which, { minLength: 2, maxLength: 6 })
/** `until` is a time after the beginning of the run. */
const extra = fc.record({
  tokens: fc.integer({ min: 1, max: 150 }),
  upTo: fc.integer({ min: 1, max: 500 }),
  until: fc.constantFrom(0, 100_000, before, 1e9)
})
const budgets = fc.record(
  {
    day: fc.integer({ min: 0, max: 200 }),
    week: fc.integer({ min: 0, max: 250 }),
    extra,
    month: fc.integer({ min: 0, max: 300 }),
    total: fc.integer({ min: 0, max: 400 })
  },
  { requiredKeys: [] }
)
const limits = fc.record({
  rpm: fc.integer({ min: 1, max: 8 }),
  tpm: fc.integer({ min: 1, max: 200 }),
  concurrent: fc.integer({ min: 1, max: 5 })
})
const part = fc.record({ limits, budgets: budgets.map((all) => Struct.omit(all, ["extra"])) })
/** `ofUser`, `ofModel`: of those requests that are of a user, and for a model with limits. */
const terms = fc.record({
  limits,
  budgets,
  tenantBudgets: budgets,
  ofUser: part,
  ofModel: part
})
type Terms = typeof terms extends fc.Arbitrary<infer A> ? A : never

const verb = <V extends string>(...verbs: ReadonlyArray<V>) => fc.constantFrom(...verbs)
const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      verb: verb("reserve"),
      which,
      terms,
      tokens: amount,
      least: fc.constantFrom(0, 0, 7, 30),
      slot: fc.boolean()
    })
  },
  {
    weight: 4,
    arbitrary: fc.record({ verb: verb("renew"), which, used: amount, want: fc.integer({ min: 0, max: 120 }) })
  },
  {
    weight: 3,
    arbitrary: fc.record({ verb: verb("settle"), which, used: amount })
  },
  {
    weight: 3,
    arbitrary: fc.record({ verb: verb("reserveAll"), turn, terms, tokens: amount, slot: fc.boolean() })
  },
  {
    weight: 2,
    arbitrary: fc.record({ verb: verb("settleAll"), turn, used: amount })
  },
  { weight: 2, arbitrary: fc.record({ verb: verb("cancel", "peek"), which, terms }) },
  { weight: 1, arbitrary: fc.record({ verb: verb("repair"), which, total: amount }) },
  { weight: 1, arbitrary: fc.record({ verb: verb("lose"), tokens: amount }) },
  {
    weight: 4,
    arbitrary: fc.record({
      verb: verb("wait"),
      ms: fc.constantFrom(1, 999, 5999, 6000, 15_000, 29_999, 30_000, 60_000, 66_000)
    })
  }
)
type Step = typeof step extends fc.Arbitrary<infer A> ? A : never

/** Those with the same key follow each other, in the order of the first of them, as one command decides those with the same claims. */
const inSections = <A>(items: ReadonlyArray<A>, keyOf: (item: A) => unknown): ReadonlyArray<A> =>
  [...Map.groupBy(items, (item) => JSON.stringify(keyOf(item))).values()].flat()

const play = Effect.fnUntraced(function* (
  steps: ReadonlyArray<Step>,
  run: number,
  calendar: Calendar,
  eve: number
) {
  const live = yield* Meter
  const counters = new MemoryMeter({ leaseS, rememberS: 1e6 }, undefined, calendar)
  const dayOf = (instant: number) => calendar.dayAt(instant).number
  const clock = yield* Clock.Clock
  const twin = makeMemory(counters, () => clock.currentTimeMillisUnsafe())
  const group = `g${run}`
  /** Two accounts of one group: requests with an even number are of the first. */
  const accountOf = (which: number) => ({ group, key: which % 2 === 0 ? "k" : "l" })
  /** Requests 2, 3, 6 and 7 are of users, two of each account. */
  const userOf = (which: number) => (which % 4 < 2 ? undefined : which < 4 ? "u" : "v")
  /** Requests 4 to 7 are for a model with limits; 6 and 7 are of a user too. */
  const modelOf = (which: number) => (which < 4 ? undefined : "m")
  const begun = ({ extra, ...budgets }: Terms["budgets"]): Budgets => ({
    ...budgets,
    ...(extra === undefined ? {} : { extra: { ...extra, until: eve + extra.until } })
  })
  const claimsOf = ({ budgets, ofModel, ofUser, tenantBudgets, ...terms }: Terms, which: number): Claims => {
    const [id, name] = [userOf(which), modelOf(which)]
    return {
      account: accountOf(which),
      ...terms,
      budgets: begun(budgets),
      tenantBudgets: begun(tenantBudgets),
      ...(id === undefined ? {} : { user: { id, ...ofUser } }),
      ...(name === undefined ? {} : { model: { name, ...ofModel } })
    }
  }
  const reservations = new Map<number, Reservation>()
  let told = ""

  /** Asks both Meters. The live one gets all questions in one turn. Returns the answers. */
  const ask = Effect.fnUntraced(function* <Q, A>(
    questions: ReadonlyArray<Q>,
    put: (meter: Meter["Service"], question: Q) => Effect.Effect<A, unknown>
  ) {
    const actual = yield* Effect.forEach(questions, (one) => Effect.option(put(live, one)), {
      concurrency: "unbounded"
    })
    const expected = yield* Effect.forEach(questions, (one) => Effect.option(put(twin, one)))
    assert.deepStrictEqual(actual, expected, told)
    return expected
  })
  const askOne = <A>(put: (meter: Meter["Service"]) => Effect.Effect<A, unknown>) => ask([undefined], put)

  const reserve = Effect.fnUntraced(function* (
    all: ReadonlyArray<number>,
    terms: Terms,
    what: { readonly tokens: number; readonly least?: number; readonly slot: boolean }
  ) {
    const verdicts = yield* ask(all, (meter, which) =>
      meter.reserve(claimsOf(terms, which), { id: `${run}-${which}`, ...what })
    )
    verdicts.forEach((verdict, i) => {
      const which = all[i]
      if (which === undefined || verdict._tag === "None" || verdict.value._tag !== "Reserved") return
      reservations.set(which, verdict.value.reservation)
    })
  })

  /** The owner of the account that is most of a request's own. */
  const ownerOf = (which: number): Account => {
    const [user, model] = [userOf(which), modelOf(which)]
    const part = model === undefined ? {} : { model }
    return { ...accountOf(which), ...(user === undefined ? part : { user }) }
  }

  const owners: ReadonlyArray<CounterOwner> = [{ group }, ...[0, 1, 2, 3, 4, 5, 6, 7].map(ownerOf)]

  /** What the Budget does when it meets a new day, or a store that has lost all. */
  const load = Effect.fnUntraced(function* (tokens: number) {
    const now = yield* Clock.currentTimeMillis
    const totals = Object.values(calendar.dayAt(now).counters).map((counter) => ({ counter, tokens }))
    for (const owner of owners) yield* askOne((meter) => meter.load(owner, totals))
  })

  yield* TestClock.setTime(eve)
  yield* load(0)
  for (const [i, action] of steps.entries()) {
    told = `step ${i}: ${JSON.stringify(action)}`
    const now = yield* Clock.currentTimeMillis
    const reservation = "which" in action ? reservations.get(action.which) : undefined
    switch (action.verb) {
      case "reserve":
        yield* reserve([action.which], action.terms, action)
        break
      case "reserveAll": {
        // A request of another day is asked for again with that day, and then comes after the others.
        const ofToday = action.turn.filter((which) => {
          const known = reservations.get(which)
          return known === undefined || dayOf(known.admittedAt) === dayOf(now)
        })
        // Now and then one of them asks whether the store is fit, and then comes after the others.
        yield* live.ping
        yield* reserve(inSections(ofToday, ownerOf), action.terms, {
          tokens: action.tokens,
          slot: action.slot
        })
        break
      }
      case "renew":
        if (reservation !== undefined)
          yield* askOne((meter) => meter.renew(reservation, action.used, action.want))
        break
      case "settle":
        if (reservation !== undefined) yield* askOne((meter) => meter.settle(reservation, action.used))
        break
      case "settleAll": {
        const all = action.turn.flatMap((which) => reservations.get(which) ?? [])
        yield* ask(
          // The claims of each request are an object of its own here.
          inSections(all, ({ admittedAt, id }) => [id, dayOf(admittedAt)]),
          (meter, one) => meter.settle(one, action.used)
        )
        break
      }
      case "cancel":
        yield* askOne((meter) =>
          meter.cancel({ id: `${run}-${action.which}`, claims: claimsOf(action.terms, action.which) })
        )
        break
      case "peek":
        yield* askOne((meter) => meter.peek(claimsOf(action.terms, action.which)))
        break
      case "repair": {
        const account = ownerOf(action.which)
        yield* askOne((meter) =>
          Effect.gen(function* () {
            const { lapsed, mark, open, totals } = yield* meter.snapshot(account, now)
            const repaired = yield* meter.repair(account, now, mark, { total: action.total })
            const shared = yield* meter.snapshot({ group, accounts: ["k", "l"] }, now)
            return [lapsed.toSorted(), open, totals, repaired, shared.open, shared.totals]
          })
        )
        break
      }
      case "lose":
        yield* yield* Wipe
        counters.clear()
        yield* load(action.tokens)
        break
      case "wait":
        yield* TestClock.setTime(now + action.ms)
        yield* load(0)
    }
  }
})

export const properties = (
  name: string,
  layer: () => Layer.Layer<Meter | Wipe>,
  options: { readonly runs: number }
): void => {
  let run = 0
  for (const { at, calendar, date, part } of midnights) {
    const eve = at - before
    const test = testWith(it.effect, layer().pipe(Layer.provide(Layer.succeed(TimeZone, calendar))))
    test(`when calls come in any order before the midnight of ${date} in ${calendar.zone}, then ${name} answers as the twin does`, function* () {
      const context = yield* Effect.context<Meter | Wipe>()
      yield* Effect.promise(() =>
        fc.assert(
          fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 60, size: "max" }), (steps) =>
            Effect.runPromiseWith(context)(play(steps, run++, calendar, eve))
          ),
          { numRuns: Math.ceil(options.runs * part) }
        )
      )
    })
  }
}
