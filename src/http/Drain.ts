/**
 * The way out. First the balancer is told (`/readyz` is 503, connections are not kept) while everything is still
 * answered; then nothing new is accepted and what runs may run on; at the end of the grace what still runs is ended
 * in its own words, charged and audited like any other end.
 */
import { Context, Deferred, Effect, Layer, Stream } from "effect"
import { ShuttingDown } from "../domain/Errors.ts"

interface DrainState {
  /** whether shutdown has begun */
  readonly draining: () => boolean
  readonly begin: Effect.Effect<void>
  /** ends what still runs */
  readonly cut: Effect.Effect<void>
  /** fails with `ShuttingDown` once the grace is over */
  within<A, E, R>(work: Effect.Effect<A, E, R>): Effect.Effect<A, E | ShuttingDown, R>
  /**
   * The same for a stream, between its chunks at no cost while nobody is shutting down. One that has been silent
   * since before the drain is interrupted without a last word.
   */
  withinStream<A, E, R>(stream: Stream.Stream<A, E, R>): Stream.Stream<A, E | ShuttingDown, R>
}

export class Drain extends Context.Service<Drain, DrainState>()("tollgate/http/Drain") {
  static readonly layer = Layer.effect(
    Drain,
    Effect.sync((): DrainState => {
      let draining = false
      const over = Deferred.makeUnsafe<never, ShuttingDown>()
      const within = <A, E, R>(work: Effect.Effect<A, E, R>) => Effect.raceFirst(work, Deferred.await(over))
      return {
        draining: () => draining,
        begin: Effect.sync(() => void (draining = true)),
        cut: Effect.suspend(() => Effect.asVoid(Deferred.fail(over, new ShuttingDown()))),
        within,
        withinStream: (stream) =>
          Stream.transformPull(stream, (pull) =>
            Effect.succeed(Effect.suspend(() => (draining ? within(pull) : pull)))
          )
      }
    })
  )
}
