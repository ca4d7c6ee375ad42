/**
 * The gate for token budgets: brings the budgets of a caller, reads its own part of the Meter's verdict, and
 * restores counters the Meter does not know from the ledger, which is the truth (contract §6).
 */
import { Context, type Effect } from "effect"
import type { Caller } from "../../domain/Caller.ts"
import type { BudgetExhausted, Unavailable } from "../../domain/Errors.ts"
import type { Evidence } from "../../domain/Evidence.ts"
import type { Budgets } from "../../domain/Limits.ts"
import type { Reservation } from "../../domain/Reservation.ts"
import type { Missing, Verdict } from "../meter/Meter.ts"

export class Budget extends Context.Service<
  Budget,
  {
    budgets(caller: Caller): Budgets
    /** Loads the missing counters from ledger plus open intents. Ledger unreadable: 503. */
    restore(caller: Caller, missing: Missing): Effect.Effect<void, Unavailable>
    /** Evidence only for a reservation that was made. */
    judge(verdict: Verdict): Effect.Effect<Evidence<"Budget", Reservation>, BudgetExhausted | Unavailable>
  }
>()("tollgate/gates/limits/Budget") {}
