/** Writes the intent row. After that the request may be sent to the backend. */
import { Effect } from "effect"
import { Audit } from "../audit/Audit.ts"
import { Unavailable } from "../domain/Errors.ts"
import type { Evidence } from "../domain/Evidence.ts"
import { LeaseKeeper } from "./LeaseKeeper.ts"
import type { RequestContext } from "./RequestContext.ts"

export const makeOpenIntent = Effect.gen(function* () {
  const [audit, leases] = [yield* Audit, yield* LeaseKeeper]

  return Effect.fnUntraced(function* (context: RequestContext, queued: Evidence<"Queue">) {
    const permit = yield* audit.open(queued)
    context.opened = true
    context.cost.permit = permit
    // If this process was paused, another request may have got the hold meanwhile.
    if (leases.lapsed(context.cost.leasedAt))
      return yield* new Unavailable({ gate: "Limiter", cause: "the lease ended before the request began" })
    return permit
  })
})
