/**
 * The wait for a place at the backend. A request that waits holds its claims (its slot, its tokens, its place among the
 * requests of the minute), and its lease is renewed while it waits.
 */
import { Effect, type Scope } from "effect"
import type { Caller } from "../domain/Caller.ts"
import type { CapacityExceeded, Unavailable } from "../domain/Errors.ts"
import { totalTokens } from "../domain/Usage.ts"
import type { RequestContext } from "./RequestContext.ts"
import { meterUnavailable } from "./remaining.ts"
import { Hold } from "./Hold.ts"
import type { Ports } from "./Ports.ts"

/** A wait that was shorter leaves nearly all of the lease. */
const shortMs = 1000

export const makeWaitForPlace = ({ leases, meter, metrics, queue }: Ports) => {
  const wait = Effect.fnUntraced(function* (
    context: RequestContext,
    caller: Caller,
    tokens: number
  ): Effect.fn.Return<number | undefined, CapacityExceeded | Unavailable, Scope.Scope> {
    const since = leases.now()
    context.queuedSince = since
    const hold = new Hold(context, meter, () => Effect.void)
    leases.keep(hold)
    const place = yield* queue
      .enter(
        {
          id: context.arrival.requestId,
          tenant: caller.tenantId,
          key: caller.keyId,
          weight: caller.weight,
          priority: caller.priority,
          cost: Math.max(1, tokens)
        },
        () => totalTokens(context.usage)
      )
      .pipe(metrics.queueing(caller.tenantName), Effect.ensuring(Effect.sync(() => leases.drop(context))))
    context.place = place
    context.queuedMs = Math.round(place.queuedMs)
    if (place.queuedMs < shortMs) return undefined
    // A process that was paused while it waited may have been taken for dead.
    const renewedAt = leases.now()
    yield* Effect.mapError(hold.renew(), meterUnavailable)
    return renewedAt
  })

  /** Answers when the lease was renewed after a wait; `undefined`: it was not, because there was none to speak of. */
  return (context: RequestContext, caller: Caller, tokens: number) =>
    queue.limited ? wait(context, caller, tokens) : Effect.succeed(undefined)
}
