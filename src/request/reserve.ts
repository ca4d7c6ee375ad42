/** The reservation of one request, noted in the same step in which it is made. */
import { Effect } from "effect"
import type { Evidence } from "../domain/Evidence.ts"
import { Limiter } from "../gates/limits/Limiter.ts"
import { LeaseKeeper } from "./LeaseKeeper.ts"
import type { RequestContext } from "./RequestContext.ts"

export const makeReserve = Effect.gen(function* () {
  const [leases, limiter] = [yield* LeaseKeeper, yield* Limiter]

  return (context: RequestContext, model: Evidence<"Discovery">) =>
    Effect.suspend(() => {
      const since = leases.now()
      // No interruption comes between the reservation and its note: what is noted is given back at the end.
      return Effect.uninterruptible(
        Effect.map(limiter.reserve(model), (reserved) => {
          context.cost.hold(reserved, since)
          context.show(reserved.known.headroom)
          return reserved
        })
      )
    })
})
