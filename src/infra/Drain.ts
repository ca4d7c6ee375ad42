/**
 * The state of a shutdown. First `/readyz` is 503 and connections are not kept, so that the balancer notices, while all
 * requests are still answered. Then no new request is accepted, and running requests go on. At the end of the grace, running
 * requests are cut: each ends with an error line or event, and is charged and audited.
 *
 * Code that waits for another server listens for the cut itself. A race in every request would cost two fibers each.
 */
import { Context, Effect, Layer } from "effect"
import { Link, LinkedList } from "./LinkedList.ts"

const make = Effect.sync(() => {
  let draining = false
  let over = false
  const listeners = new LinkedList<() => void>()
  /** Calls `listener` at the cut, or at once after it. Returns a function that unregisters the listener. */
  const onCut = (listener: () => void): (() => void) => {
    const link = new Link(listener)
    if (over) listener()
    else listeners.add(link)
    return () => void listeners.remove(link)
  }
  return {
    /** whether shutdown has begun */
    draining: () => draining,
    begin: Effect.sync(() => void (draining = true)),
    /** ends the requests that still run */
    cut: Effect.sync(() => {
      over = true
      for (const listener of listeners.all) listener()
    }),
    onCut
  }
})

export class Drain extends Context.Service<Drain>()("tollgate/infra/Drain", { make }) {
  static readonly layer = Layer.effect(Drain, make)
}
