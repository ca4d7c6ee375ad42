/**
 * The state of a shutdown. First `/readyz` is 503 and connections are not kept, so that the balancer notices, while all
 * requests are still answered. Then no new request is accepted, and running requests go on. At the end of the grace, running
 * requests are cut: each ends with an error line or event, and is charged and audited.
 *
 * Code that waits for another server listens for the cut itself. A race in every request would cost two fibers each.
 */
import { Context, Effect, Layer } from "effect"

interface DrainState {
  /** whether shutdown has begun */
  readonly draining: () => boolean
  readonly begin: Effect.Effect<void>
  /** ends the requests that still run */
  readonly cut: Effect.Effect<void>
  /** Calls `listener` at the cut, or at once after it. Returns a function that unregisters the listener. */
  onCut(listener: () => void): () => void
}

export class Drain extends Context.Service<Drain, DrainState>()("tollgate/infra/Drain") {
  static readonly layer = Layer.effect(
    Drain,
    Effect.sync((): DrainState => {
      let draining = false
      let over = false
      const listeners = new Set<() => void>()
      const onCut = (listener: () => void) => {
        if (over) {
          listener()
          return () => undefined
        }
        listeners.add(listener)
        return () => void listeners.delete(listener)
      }
      return {
        draining: () => draining,
        begin: Effect.sync(() => void (draining = true)),
        cut: Effect.sync(() => {
          over = true
          for (const listener of listeners) listener()
        }),
        onCut
      }
    })
  )
}
