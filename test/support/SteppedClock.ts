/** A clock whose wall time a test sets while monotonic time goes on: what NTP, an operator or a hypervisor does. */
import { Clock, Context, Effect, Layer } from "effect"

/** The hand on the wall clock. */
export class WallClock extends Context.Service<
  WallClock,
  {
    /** Sets the wall clock forward, or back. */
    step(ms: number): Effect.Effect<void>
    /** Runs `work` by this clock. */
    readonly on: <A, E, R>(work: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  }
>()("test/WallClock") {
  static readonly layer = Layer.effect(
    WallClock,
    Effect.map(Clock.Clock, (clock) => {
      let offsetMs = 0
      const millis = () => clock.currentTimeMillisUnsafe() + offsetMs
      const nanos = () => clock.currentTimeNanosUnsafe() + BigInt(offsetMs) * 1_000_000n
      const stepped: Clock.Clock = {
        currentTimeMillisUnsafe: millis,
        currentTimeMillis: Effect.sync(millis),
        currentTimeNanosUnsafe: nanos,
        currentTimeNanos: Effect.sync(nanos),
        monotonicTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe(),
        monotonicTimeNanos: clock.monotonicTimeNanos,
        sleep: (duration) => clock.sleep(duration)
      }
      return WallClock.of({
        step: (ms) => Effect.sync(() => void (offsetMs += ms)),
        on: (work) => Effect.provideService(work, Clock.Clock, stepped)
      })
    })
  )
}

/** Builds a layer whose services live by the clock of `WallClock`. */
export const onWallClock = <A, E, R>(layer: Layer.Layer<A, E, R>): Layer.Layer<A, E, R | WallClock> =>
  Layer.effectContext(Effect.flatMap(WallClock, ({ on }) => on(Layer.build(layer))))
