/**
 * Reserves for one request, and records the reservation in its context in the same step. When the request is likely to be
 * admitted, its intent row is written at the same time (`Audit.prepare`), so that it does not wait for one store after the
 * other.
 */
import { Effect } from "effect"
import { Audit } from "../audit/Audit.ts"
import { CircuitBreaker } from "../backend/CircuitBreaker.ts"
import type { Evidence } from "../domain/Evidence.ts"
import type { Reservation } from "../domain/Reservation.ts"
import { Limiter } from "../gates/limits/Limiter.ts"
import { FairQueue } from "../gates/queue/FairQueue.ts"
import { LeaseKeeper } from "./LeaseKeeper.ts"
import type { RequestContext } from "./RequestContext.ts"

export const makeReserve = Effect.gen(function* () {
  const [audit, breaker, leases] = [yield* Audit, yield* CircuitBreaker, yield* LeaseKeeper]
  const [limiter, queue] = [yield* Limiter, yield* FairQueue]

  return (context: RequestContext, model: Evidence<"Discovery">) => {
    const since = leases.now()
    const prepare = (expected: Reservation): void => {
      context.prepare()
      audit.prepare(model, expected)
    }
    // A request that waits in the queue, or that the breaker refuses, has no intent yet.
    const canPrepare = queue.limited
      ? Effect.succeed(false)
      : Effect.isSuccess(breaker.check(model.facts.caller))
    // No interruption may come between the reservation and its record: only a recorded reservation is given back.
    return Effect.uninterruptible(
      Effect.flatMap(canPrepare, (can) =>
        Effect.map(limiter.reserve(model, can ? prepare : undefined), (reserved) => {
          context.cost.hold(reserved, since)
          context.show(reserved.facts.headroom)
          return reserved
        })
      )
    )
  }
})
