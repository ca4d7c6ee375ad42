/**
 * The gate for requests and tokens per minute, concurrency and budgets: one reservation claims all of them or none. The
 * counting itself is the Meter's.
 */
import { Context, type Effect } from "effect"
import type { BudgetExhausted, RateLimited, Unavailable } from "../../domain/Errors.ts"
import type { Evidence } from "../../domain/Evidence.ts"
import type { Headroom } from "../../domain/Limits.ts"

export class Limiter extends Context.Service<
  Limiter,
  {
    /**
     * Claims limits and budgets, and bounds the call by what is left of them. A reservation must be settled or
     * cancelled, so it must be run where nothing is interrupted, together with its record (`request/admit.ts`).
     */
    reserve(
      model: Evidence<"Discovery">
    ): Effect.Effect<Evidence<"Limiter">, BudgetExhausted | RateLimited | Unavailable>
    /** Reads what is left for a caller. Consumes nothing. */
    headroom(key: Evidence<"KeyStore">): Effect.Effect<Headroom, Unavailable>
  }
>()("tollgate/gates/limits/Limiter") {}
