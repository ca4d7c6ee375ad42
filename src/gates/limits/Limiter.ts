/**
 * The gate for requests and tokens per minute and for concurrency: brings the limits that apply to a caller and
 * reads its own part of the Meter's verdict. The counting itself is the Meter's.
 */
import { Context, type Effect } from "effect"
import type { Caller } from "../../domain/Caller.ts"
import type { RateLimited, Unavailable } from "../../domain/Errors.ts"
import type { Evidence } from "../../domain/Evidence.ts"
import type { EffectiveLimits, Headroom } from "../../domain/Limits.ts"
import type { Verdict } from "../meter/Meter.ts"

export class Limiter extends Context.Service<
  Limiter,
  {
    limits(caller: Caller): EffectiveLimits
    /** Evidence unless a rate or slot claim was refused. A verdict that is still `Missing` decides nothing: 503. */
    judge(verdict: Verdict): Effect.Effect<Evidence<"Limiter", Headroom>, RateLimited | Unavailable>
  }
>()("tollgate/gates/limits/Limiter") {}
