/**
 * Waits for a place at the backend. A waiting request keeps its claims (slot, tokens, place in the requests of the
 * minute), and its lease is renewed.
 */
import { Effect, type Scope } from "effect"
import type { CapacityExceeded, Unavailable } from "../domain/Errors.ts"
import type { Evidence } from "../domain/Evidence.ts"
import { totalTokens } from "../domain/Usage.ts"
import { Meter, meterUnavailable } from "../gates/meter/Meter.ts"
import { FairQueue } from "../gates/queue/FairQueue.ts"
import { Metrics } from "../observability/Metrics.ts"
import { Hold } from "./Hold.ts"
import { LeaseKeeper } from "./LeaseKeeper.ts"
import type { RequestContext } from "./RequestContext.ts"

/** After a shorter wait the lease is not renewed, because nearly all of it is left. */
const shortMs = 1000

export const makeWaitForPlace = Effect.gen(function* () {
  const [leases, meter, metrics, queue] = [yield* LeaseKeeper, yield* Meter, yield* Metrics, yield* FairQueue]

  const wait = Effect.fnUntraced(function* (
    context: RequestContext,
    reserved: Evidence<"Limiter">
  ): Effect.fn.Return<Evidence<"Queue">, CapacityExceeded | Unavailable, Scope.Scope> {
    const since = leases.now()
    context.startWaiting(since)
    const hold = new Hold(context.cost, meter, () => Effect.void)
    leases.keep(hold)
    const queued = yield* queue
      .enter(reserved, () => totalTokens(context.cost.usage))
      .pipe(
        metrics.queueing(reserved.facts.caller.tenantName),
        Effect.ensuring(Effect.sync(() => leases.drop(context.cost)))
      )
    const { place } = queued.facts
    if (place === undefined) return queued
    context.cost.take(place)
    context.stopWaiting(place.queuedMs)
    if (place.queuedMs < shortMs) return queued
    // A process that was paused while it waited may count as dead.
    const renewedAt = leases.now()
    yield* Effect.mapError(hold.renew(), meterUnavailable)
    context.cost.renewLease(renewedAt)
    return queued
  })

  return (context: RequestContext, reserved: Evidence<"Limiter">) =>
    queue.limited && reserved.facts.reservation.slot
      ? wait(context, reserved)
      : queue.enter(reserved, () => totalTokens(context.cost.usage))
})
