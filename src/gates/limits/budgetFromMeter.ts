/**
 * The budgets of a caller, and the loading of totals that the Meter has lost.
 *
 * Many requests that miss the same counters cause one ledger read: requests that come during the read wait for it. No
 * request is admitted meanwhile. Nothing is cached afterwards; the counter itself exists then.
 */
import { Cache, Clock, Data, Duration, Effect, Layer } from "effect"
import { Ledger } from "./Ledger.ts"
import { Unavailable } from "../../domain/Errors.ts"
import { periods } from "../../domain/Limits.ts"
import { measured, unmeasured } from "../../infra/time.ts"
import type { Account } from "../../domain/Reservation.ts"
import { Meter } from "../meter/Meter.ts"
import { Budget } from "./Budget.ts"

/** An instant in the missing buckets; undefined when only `total` is missing, because any instant will do. */
const instantOf = (buckets: {
  readonly day: string | undefined
  readonly month: string | undefined
}): number | undefined => {
  if (buckets.day !== undefined) return Date.parse(`${buckets.day}T00:00:00Z`)
  if (buckets.month !== undefined) return Date.parse(`${buckets.month}-01T00:00:00Z`)
  return undefined
}

/** Identifies counters of an account; equal when all fields are equal. */
class Gap extends Data.Class<{
  readonly group: string
  readonly key: string
  readonly day: string | undefined
  readonly month: string | undefined
  readonly total: string | undefined
}> {}

/** Ledger and Meter together: far less than what a load may lag behind an admission (`scripts.ts`). */
const patience = Duration.seconds(4)

export const layerFromMeter: Layer.Layer<Budget, never, Ledger | Meter> = Layer.effect(
  Budget,
  Effect.gen(function* () {
    const [ledger, meter] = [yield* Ledger, yield* Meter]

    const rebuild = Effect.fnUntraced(function* (gap: Gap) {
      const buckets = { day: gap.day, month: gap.month, total: gap.total }
      const instant = instantOf(buckets) ?? (yield* Clock.currentTimeMillis)
      const account: Account = { group: gap.group, key: gap.key }
      const spent = yield* ledger.spent(account.key, instant)
      const totals = periods.flatMap((period) => {
        const bucket = buckets[period]
        return bucket === undefined ? [] : [{ bucket, tokens: spent[period] }]
      })
      yield* meter.load(account, totals)
    })

    const flights = yield* Cache.make({
      capacity: Number.POSITIVE_INFINITY,
      timeToLive: Duration.zero,
      lookup: (gap: Gap) =>
        rebuild(gap).pipe(
          Effect.mapError((error) => new Unavailable({ gate: "Budget", cause: error.cause })),
          Effect.timeoutOrElse({
            duration: patience,
            orElse: () =>
              Effect.fail(new Unavailable({ gate: "Budget", cause: "the ledger did not answer in time" }))
          }),
          unmeasured
        )
    })

    return {
      budgets: (caller) => caller.budgets,
      restore: ({ group, key }, { buckets: { day, month, total } }) =>
        measured(Cache.get(flights, new Gap({ group, key, day, month, total })))
    }
  })
)
