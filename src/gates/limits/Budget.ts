/**
 * The gate for token budgets. Budgets are claimed in the same step as the limits (`Limiter.reserve`). What is left to do is
 * to load counters that the Meter does not know from the ledger, which is the truth.
 */
import { Context, type Effect } from "effect"
import type { Unavailable } from "../../domain/Errors.ts"
import type { Claims } from "../../domain/Reservation.ts"
import type { Missing } from "../meter/Meter.ts"

export class Budget extends Context.Service<
  Budget,
  {
    /** Loads the missing counters of the claims from the ledger and the open intents. Fails when the ledger cannot be read. */
    restore(claims: Claims, missing: Missing): Effect.Effect<void, Unavailable>
  }
>()("tollgate/gates/limits/Budget") {}
