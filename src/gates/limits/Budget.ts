/**
 * The gate for token budgets. It reads the budget part of the Meter's verdict. The ledger is the truth: counters that the
 * Meter does not know are restored from it.
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
