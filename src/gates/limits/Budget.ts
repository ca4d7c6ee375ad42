/**
 * The gate for token budgets: returns the budgets of a caller, and loads totals that the Meter does not know from the
 * ledger, which is the truth. Budgets are claimed in the same step as the limits (`Limiter.reserve`).
 */
import { Context, type Effect } from "effect"
import type { Caller } from "../../domain/Caller.ts"
import type { Unavailable } from "../../domain/Errors.ts"
import type { Budgets } from "../../domain/Limits.ts"
import type { Account } from "../../domain/Reservation.ts"
import type { Missing } from "../meter/Meter.ts"

export class Budget extends Context.Service<
  Budget,
  {
    budgets(caller: Caller): Budgets
    /** Loads the missing totals from the ledger and the open intents. Fails when the ledger cannot be read. */
    restore(account: Account, missing: Missing): Effect.Effect<void, Unavailable>
  }
>()("tollgate/gates/limits/Budget") {}
