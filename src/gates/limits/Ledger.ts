/** What every key has spent: the truth behind the Meter's totals. */
import { Context, Data, type Effect } from "effect"
import type { Period } from "../../domain/Limits.ts"

export class LedgerDown extends Data.TaggedError("LedgerDown")<{ readonly cause: unknown }> {}

export class Ledger extends Context.Service<
  Ledger,
  {
    /**
     * Tokens of `keyId` in the day, the month and the whole time that hold the instant `at` (epoch ms): settled
     * requests plus what open intents hold.
     */
    spent(keyId: string, at: number): Effect.Effect<{ readonly [P in Period]: number }, LedgerDown>
  }
>()("tollgate/gates/limits/Ledger") {}
