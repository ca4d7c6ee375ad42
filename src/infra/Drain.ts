/**
 * The way out. First the balancer is told (`/readyz` is 503, connections are not kept) while everything is still
 * answered; then nothing new is accepted and what runs may run on; at the end of the grace what still runs is cut and
 * ends in its own words, charged and audited like any other end.
 *
 * What waits for somebody else listens for the cut itself. Racing every request against it from outside would cost each
 * of them two fibers for what nearly none will see.
 */
import { Context, Effect, Layer } from "effect"
import { DenseList } from "./DenseList.ts"

interface DrainState {
  /** whether shutdown has begun */
  readonly draining: () => boolean
  readonly begin: Effect.Effect<void>
  /** ends what still runs */
  readonly cut: Effect.Effect<void>
  /** Calls `listener` at the cut, at once when that was before. Answers the way to stop listening. */
  onCut(listener: () => void): () => void
}

export class Drain extends Context.Service<Drain, DrainState>()("tollgate/infra/Drain") {
  static readonly layer = Layer.effect(
    Drain,
    Effect.sync((): DrainState => {
      let draining = false
      let over = false
      const listeners = new DenseList<() => void>()
      const onCut = (listener: () => void) => {
        if (over) {
          listener()
          return () => undefined
        }
        const seat = listeners.add(listener)
        return () => listeners.remove(seat)
      }
      return {
        draining: () => draining,
        begin: Effect.sync(() => void (draining = true)),
        cut: Effect.sync(() => {
          over = true
          for (const listener of listeners.all) listener()
        }),
        onCut
      }
    })
  )
}
