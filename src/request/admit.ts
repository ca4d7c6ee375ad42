/**
 * The gates of a request between its model and its call, each with the record of it in the request's context: the reservation, the
 * place at the backend, the intent row.
 */
import { Effect } from "effect"
import { Audit } from "../audit/Audit.ts"
import { Unavailable } from "../domain/Errors.ts"
import type { Evidence } from "../domain/Evidence.ts"
import { totalTokens } from "../domain/Usage.ts"
import { Limiter } from "../gates/limits/Limiter.ts"
import { Meter, meterUnavailable } from "../gates/meter/Meter.ts"
import { FairQueue, type Used } from "../gates/queue/FairQueue.ts"
import { Metrics } from "../observability/Metrics.ts"
import { Hold } from "./Hold.ts"
import { LeaseKeeper } from "./LeaseKeeper.ts"
import type { RequestCost } from "./RequestCost.ts"
import type { RequestContext } from "./RequestContext.ts"

/** After a shorter wait the lease is not renewed, because nearly all of it is left. */
const shortMs = 1000
const nsPerMs = 1_000_000

const usedOf = (cost: RequestCost) => (): Used => ({
  tokens: totalTokens(cost.usage),
  loadMs: cost.final?.loadDuration === undefined ? undefined : cost.final.loadDuration / nsPerMs
})

export const makeAdmit = Effect.gen(function* () {
  const audit = yield* Audit
  const leases = yield* LeaseKeeper
  const limiter = yield* Limiter
  const meter = yield* Meter
  const metrics = yield* Metrics
  const queue = yield* FairQueue

  /** No interruption may come between the reservation and its record: only a recorded reservation is given back. */
  const reserve = (context: RequestContext, model: Evidence<"Discovery">) => {
    const since = leases.now()
    const recorded = Effect.map(limiter.reserve(model), (reserved) => {
      context.cost.hold(reserved, since)
      context.headroom = reserved.facts.headroom
      return reserved
    })
    return Effect.uninterruptible(recorded)
  }

  /** A waiting request keeps its claims (slot, tokens, place in the requests of the minute), and its lease is renewed. */
  const wait = Effect.fnUntraced(function* (context: RequestContext, reserved: Evidence<"Limiter">) {
    const { cost } = context
    context.queuedSince = leases.now()
    const hold = new Hold(cost, meter, () => Effect.void)
    const queued = yield* Effect.acquireUseRelease(
      Effect.sync(() => leases.keep(hold)),
      () => queue.enter(reserved, usedOf(cost)),
      (release) => Effect.sync(release)
    ).pipe(metrics.queueing(reserved.facts.caller.tenantName))
    cost.facts = queued.facts
    const { place } = queued.facts
    if (place === undefined || place.queuedMs < shortMs) return queued
    // A process that was paused while it waited may count as dead.
    const renewedAt = leases.now()
    yield* Effect.mapError(hold.renew, meterUnavailable)
    // Then its reservation was undone, and nothing would count what it uses. A request that lives never holds less than before.
    if (hold.held < reserved.facts.reservation.held)
      return yield* new Unavailable({
        gate: "Limiter",
        cause: "the reservation ended while the request waited"
      })
    if (cost.held !== undefined) cost.held = { ...cost.held, leasedAt: renewedAt }
    return queued
  })

  const waitForPlace = (context: RequestContext, reserved: Evidence<"Limiter">) =>
    queue.limited && reserved.facts.reservation.slot
      ? wait(context, reserved)
      : queue.enter(reserved, usedOf(context.cost))

  /** Writes the intent row. After that the request may be sent to the backend. */
  const openIntent = ({ cost }: RequestContext, queued: Evidence<"Queue">) => {
    cost.facts = queued.facts
    return Effect.flatMap(audit.open(queued), (permit) => {
      cost.permit = permit
      // If this process was paused, another request may have got the hold meanwhile.
      return leases.lapsed(cost.held?.leasedAt ?? 0)
        ? new Unavailable({ gate: "Limiter", cause: "the lease ended before the request began" })
        : Effect.succeed(permit)
    })
  }

  return { openIntent, reserve, waitForPlace }
})
