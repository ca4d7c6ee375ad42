/** Milliseconds that only ever grow, for what is measured and not told: of the clock of the context, a test's too. */
import { Clock, Effect } from "effect"

export const makeMonotonicMs: Effect.Effect<() => number> = Effect.map(
  Clock.Clock,
  (clock) => () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
)
