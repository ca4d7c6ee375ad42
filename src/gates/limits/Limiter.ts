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
     * Claims limits and budgets, and bounds the call by what they have left. Whoever gets a reservation has to settle or
     * cancel it, so no interruption comes between the Meter's answer and the end of this.
     */
    reserve(
      model: Evidence<"Discovery">
    ): Effect.Effect<Evidence<"Limiter">, BudgetExhausted | RateLimited | Unavailable>
    /** What is left for a caller, without consuming anything. */
    headroom(key: Evidence<"KeyStore">): Effect.Effect<Headroom, Unavailable>
  }
>()("tollgate/gates/limits/Limiter") {}
