/** The tokens that each key has spent: the truth behind the totals of the Meter. */
import { Context, Data, type Effect } from "effect"
import type { Period } from "../../domain/Limits.ts"

export class LedgerDown extends Data.TaggedError("LedgerDown")<{ readonly cause: unknown }> {}

export class Ledger extends Context.Service<
  Ledger,
  {
    /**
     * Tokens of `keyId` in the day, in the month and in total, at the instant `at` (epoch ms): settled requests plus
     * what open intents hold.
     */
    spent(keyId: string, at: number): Effect.Effect<{ readonly [P in Period]: number }, LedgerDown>
  }
>()("tollgate/gates/limits/Ledger") {}
