/**
 * The gate for token budgets. Budgets are claimed in the same step as the limits (`Limiter.reserve`). What is left to do is
 * to load counters that the Meter does not know from the ledger, which is the truth.
 *
 * Many requests that miss the same counters cause one ledger read: requests that come during the read wait for it. No
 * request is admitted meanwhile. Nothing is cached afterwards; the counter itself exists then.
 */
import { Context, Data, Effect, Layer, RcMap } from "effect"
import { Ledger } from "./Ledger.ts"
import { Unavailable } from "../../domain/Errors.ts"
import { periods } from "../../domain/Limits.ts"
import { type Claims, type CounterOwner, type Counters, ownersOf } from "../../domain/Reservation.ts"
import { Meter, type Missing } from "../meter/Meter.ts"
import { Reconciler } from "./Reconciler.ts"

/** Missing counters of an account, or without `key` of a group; equal when all fields are equal. */
class Gap extends Data.Class<{
  readonly group: string
  readonly key: string | undefined
  readonly user: string | undefined
  readonly model: string | undefined
  readonly instant: number
  readonly day: string | undefined
  readonly week: string | undefined
  readonly month: string | undefined
  readonly total: string | undefined
}> {}

/** Ledger and Meter together: far less than what a load may lag behind an admission (`scripts.ts`). */
const patience = "4 seconds"

const make = Effect.gen(function* () {
  const ledger = yield* Ledger
  const meter = yield* Meter
  const reconciler = yield* Reconciler

  const rebuild = Effect.fnUntraced(function* (gap: Gap) {
    const missing = periods.flatMap((period) => {
      const counter = gap[period]
      return counter === undefined ? [] : [{ counter, period }]
    })
    const spent = yield* ledger.spent(gap, gap.instant, missing.at(-1)?.period ?? "day")
    yield* meter.load(
      gap,
      missing.map(({ counter, period }) => ({ counter, tokens: spent[period] }))
    )
    // A request that is open at this moment may be in the ledger's figure and be counted once more.
    yield* reconciler.compareSoon(gap)
  })

  /** One load of a gap at a time. It is forgotten when the last request that waits for it goes on. */
  const flights = yield* RcMap.make({
    lookup: (gap: Gap) =>
      rebuild(gap).pipe(
        Effect.mapError((error) => new Unavailable({ gate: "Budget", cause: error.cause })),
        Effect.timeoutOrElse({
          duration: patience,
          orElse: () =>
            Effect.fail(new Unavailable({ gate: "Budget", cause: "the ledger did not answer in time" }))
        })
      )
  })

  const fill = (
    { group, key, model, user }: CounterOwner,
    instant: number,
    { day, month, total, week }: Counters = {}
  ) =>
    [day, week, month, total].every((counter) => counter === undefined)
      ? Effect.void
      : Effect.scoped(
          RcMap.get(flights, new Gap({ group, key, user, model, instant, day, week, month, total }))
        )

  return {
    /** Loads the missing counters of the claims from the ledger and the open intents. Fails when the ledger cannot be read. */
    restore: (claims: Claims, missing: Missing) => {
      const { counters: key, modelCounters: model, tenantCounters: tenant, userCounters: user } = missing
      const counters = { key, tenant, user, model }
      return Effect.forEach(
        ownersOf(claims),
        ({ owner, scope }) => fill(owner, missing.instant, counters[scope]),
        {
          concurrency: "unbounded",
          discard: true
        }
      )
    }
  }
})

export class Budget extends Context.Service<Budget>()("tollgate/gates/limits/Budget", { make }) {
  static readonly layer: Layer.Layer<Budget, never, Ledger | Meter | Reconciler> = Layer.effect(Budget, make)
}
