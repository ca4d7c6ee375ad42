/**
 * What ends requests from outside: a shutdown, and an operator who stops a key.
 *
 * A shutdown has steps. First `/readyz` is 503 and connections are not kept, so that the balancer notices, while all
 * requests are still answered. Then no new request is accepted, and running requests go on. At the end of the grace, running
 * requests are cut: each ends with an error line or event, and is charged and audited. Requests of a stopped key end the same way.
 *
 * Code that waits listens for the cut itself. A race in every request would cost two fibers each.
 */
import { Context, Effect, Layer } from "effect"
import type { Arrival } from "../domain/AuditRecord.ts"
import type { Caller } from "../domain/Caller.ts"
import { ShuttingDown } from "../domain/Errors.ts"
import { Link, LinkedList } from "./LinkedList.ts"
import { makeLruCache } from "./LruCache.ts"
import { RequestIds } from "./RequestIds.ts"

/** A request of a client. Its id says when it arrived. */
export interface RequestOfKey {
  readonly arrival: Pick<Arrival, "requestId">
  readonly caller: Pick<Caller, "keyPrefix">
}

type Listener = (why: ShuttingDown) => void

/** A stop is remembered for requests that have not come to what they wait for. */
const rememberedStops = 1000

const make = Effect.gen(function* () {
  const newId = yield* RequestIds
  let draining = false
  let over = false
  const listeners = new LinkedList<{ readonly listener: Listener; readonly of: RequestOfKey | undefined }>()
  /** by key, an id of the moment */
  const stops = makeLruCache<string>(rememberedStops)

  const wasStopped = ({ arrival, caller }: RequestOfKey): boolean =>
    arrival.requestId < (stops.peek(caller.keyPrefix) ?? "")

  return {
    /** whether shutdown has begun */
    draining: () => draining,
    begin: Effect.sync(() => void (draining = true)),
    /** ends the requests that still run */
    cut: Effect.sync(() => {
      over = true
      for (const { listener } of listeners.all) listener(new ShuttingDown({}))
    }),
    /** ends the requests of a key that have arrived until now */
    stop: (key: string): void => {
      stops.set(key, newId())
      for (const { listener, of } of listeners.all)
        if (of?.caller.keyPrefix === key) listener(new ShuttingDown({ key }))
    },
    /**
     * Calls `listener` at the cut, or when the key of the request `of` is stopped, or at once after it. Returns a function that
     * unregisters the listener.
     */
    onCut: (listener: Listener, of?: RequestOfKey): (() => void) => {
      const link = new Link({ listener, of })
      if (over) listener(new ShuttingDown({}))
      else if (of !== undefined && wasStopped(of)) listener(new ShuttingDown({ key: of.caller.keyPrefix }))
      else listeners.add(link)
      return () => void listeners.remove(link)
    }
  }
})

export class Drain extends Context.Service<Drain>()("tollgate/infra/Drain", { make }) {
  static readonly layer = Layer.effect(Drain, make)
}
