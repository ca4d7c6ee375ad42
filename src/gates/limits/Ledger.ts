/** The tokens that keys and tenants have spent: the truth behind the counters of the Meter. */
import { Context, Data, type Effect, Schema } from "effect"
import type { Period } from "../../domain/Limits.ts"
import type { CounterOwner } from "../../domain/Reservation.ts"

export class LedgerDown extends Data.TaggedError("LedgerDown")<{ readonly cause: unknown }> {}

/** What an account used of a model on a day. */
export const DayUse = Schema.Struct({
  day: Schema.String,
  model: Schema.String,
  requests: Schema.Finite,
  tokens_in: Schema.Finite,
  tokens_out: Schema.Finite
})
export type DayUse = typeof DayUse.Type

export class Ledger extends Context.Service<
  Ledger,
  {
    /**
     * Tokens of an account, which may have several keys, or of a whole group (the tenant), in the day, the week, the month
     * and in total, at the instant `at` (epoch ms): settled requests plus what open intents hold. The sum of all days is only read
     * for `total`, which `longest` asks for; it is 0 otherwise.
     */
    spent(
      owner: CounterOwner,
      at: number,
      longest: Period
    ): Effect.Effect<{ readonly [P in Period]: number }, LedgerDown>
    /** What an account has used since the day `since`: the newest day first, in a day the largest use; at most `limit` rows. */
    uses(account: string, since: string, limit: number): Effect.Effect<ReadonlyArray<DayUse>, LedgerDown>
  }
>()("tollgate/gates/limits/Ledger") {}
