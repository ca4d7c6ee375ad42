/** The tokens that keys and tenants have spent: the truth behind the counters of the Meter. */
import { Context, Data, type Effect } from "effect"
import type { Period } from "../../domain/Limits.ts"
import type { CounterOwner } from "../../domain/Reservation.ts"

export class LedgerDown extends Data.TaggedError("LedgerDown")<{ readonly cause: unknown }> {}

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
  }
>()("tollgate/gates/limits/Ledger") {}
