/** What is left for a caller, without consuming anything: for the headers of lists and of refusals. */
import { Effect } from "effect"
import type { Caller } from "../domain/Caller.ts"
import { Unavailable } from "../domain/Errors.ts"
import type { Headroom } from "../domain/Limits.ts"
import { Budget } from "../gates/Budget/Budget.ts"
import { Limiter } from "../gates/Limiter/Limiter.ts"
import { type Claims, Meter, type MeterDown, Missing } from "../gates/Meter/Meter.ts"

export const claimsOf = Effect.fnUntraced(function* (
  caller: Caller
): Effect.fn.Return<Claims, never, Limiter | Budget> {
  const [limiter, budget] = [yield* Limiter, yield* Budget]
  return {
    account: { group: caller.tenantId, key: caller.keyId },
    limits: limiter.limits(caller),
    budgets: budget.budgets(caller)
  }
})

/** Nobody can tell what is left, so nobody is let through. */
export const meterUnavailable = (error: MeterDown): Unavailable =>
  new Unavailable({ gate: "Limiter", cause: error.cause })

/** Asks the Meter; when it misses counters, restores them from the ledger and asks once more. */
export const restoring = Effect.fnUntraced(function* <A>(
  caller: Caller,
  ask: Effect.Effect<A | Missing, MeterDown>
): Effect.fn.Return<A | Missing, Unavailable, Budget> {
  const first = yield* Effect.mapError(ask, meterUnavailable)
  if (!(first instanceof Missing)) return first
  const budget = yield* Budget
  yield* budget.restore(caller, first)
  return yield* Effect.mapError(ask, meterUnavailable)
})

export const headroomOf = Effect.fnUntraced(function* (
  caller: Caller
): Effect.fn.Return<Headroom, Unavailable, Limiter | Budget | Meter> {
  const meter = yield* Meter
  const headroom = yield* restoring<Headroom>(caller, meter.peek(yield* claimsOf(caller)))
  if (headroom instanceof Missing) return yield* new Unavailable({ gate: "Budget", cause: headroom })
  return headroom
})
