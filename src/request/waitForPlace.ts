/**
 * The wait for a place at the backend. A request that waits holds its claims (its slot, its tokens, its place among the
 * requests of the minute), and its lease is renewed while it waits.
 */
import { Effect, type Scope } from "effect"
import type { Caller } from "../domain/Caller.ts"
import type { CapacityExceeded, Unavailable } from "../domain/Errors.ts"
import { totalTokens } from "../domain/Usage.ts"
import type { Exchange } from "./RequestContext.ts"
import { meterUnavailable } from "./remaining.ts"
import { Hold } from "./Hold.ts"
import type { Ports } from "./Ports.ts"

/** A wait that was shorter leaves nearly all of the lease. */
const shortMs = 1000

export const makeWaitForPlace = ({ leases, meter, metrics, queue }: Ports) => {
  const wait = Effect.fnUntraced(function* (
    exchange: Exchange,
    caller: Caller,
    tokens: number
  ): Effect.fn.Return<number | undefined, CapacityExceeded | Unavailable, Scope.Scope> {
    const since = leases.now()
    exchange.queuedSince = since
    const hold = new Hold(exchange, meter, () => Effect.void)
    leases.keep(hold)
    const place = yield* queue
      .enter(
        {
          id: exchange.arrival.requestId,
          tenant: caller.tenantId,
          key: caller.keyId,
          weight: caller.weight,
          priority: caller.priority,
          cost: Math.max(1, tokens)
        },
        () => totalTokens(exchange.usage)
      )
      .pipe(metrics.queueing(caller.tenantName), Effect.ensuring(Effect.sync(() => leases.drop(exchange))))
    exchange.place = place
    exchange.queuedMs = Math.round(place.queuedMs)
    if (place.queuedMs < shortMs) return undefined
    // A process that was paused while it waited may have been taken for dead.
    const renewedAt = leases.now()
    yield* Effect.mapError(hold.renew(), meterUnavailable)
    return renewedAt
  })

  /** Answers when the lease was renewed after a wait; `undefined`: it was not, because there was none to speak of. */
  return (exchange: Exchange, caller: Caller, tokens: number) =>
    queue.limited ? wait(exchange, caller, tokens) : Effect.succeed(undefined)
}
