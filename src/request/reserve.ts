/** Reserves for one request, and records the reservation in its context in the same step. */
import { Effect } from "effect"
import type { Evidence } from "../domain/Evidence.ts"
import { Limiter } from "../gates/limits/Limiter.ts"
import { LeaseKeeper } from "./LeaseKeeper.ts"
import type { RequestContext } from "./RequestContext.ts"

export const makeReserve = Effect.gen(function* () {
  const [leases, limiter] = [yield* LeaseKeeper, yield* Limiter]

  // No interruption may come between the reservation and its record: only a recorded reservation is given back.
  return Effect.fnUntraced(function* (context: RequestContext, model: Evidence<"Discovery">) {
    const since = leases.now()
    const reserved = yield* limiter.reserve(model)
    context.cost.hold(reserved, since)
    context.headroom = reserved.facts.headroom
    return reserved
  }, Effect.uninterruptible)
})
