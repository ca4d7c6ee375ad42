/**
 * Time that only ever grows, for whatever is measured: durations, deadlines, ages. The wall clock says when something
 * happened and is never subtracted: NTP, an operator or a hypervisor may set it by an hour at any moment.
 * `test/unit/clocks.test.ts` names the files that may read the wall clock, and why.
 *
 * *Gotchas* It stands still while the machine sleeps.
 */
import { Clock, type Duration, Effect } from "effect"

/** Milliseconds of the clock of the context, a test's too. */
export const makeMonotonicMs: Effect.Effect<() => number> = Effect.map(
  Clock.Clock,
  (clock) => () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
)

/** Monotonic time in the place of the wall clock. */
class MeasuringClock implements Clock.Clock {
  readonly real: Clock.Clock
  readonly currentTimeMillis = Effect.sync(() => this.currentTimeMillisUnsafe())
  readonly currentTimeNanos: Effect.Effect<bigint>
  readonly monotonicTimeNanos: Effect.Effect<bigint>

  constructor(real: Clock.Clock) {
    this.real = real
    this.currentTimeNanos = real.monotonicTimeNanos
    this.monotonicTimeNanos = real.monotonicTimeNanos
  }

  /** Whole, as the wall clock's are. */
  currentTimeMillisUnsafe(): number {
    return Number(this.real.monotonicTimeNanosUnsafe() / 1_000_000n)
  }

  currentTimeNanosUnsafe(): bigint {
    return this.real.monotonicTimeNanosUnsafe()
  }

  monotonicTimeNanosUnsafe(): bigint {
    return this.real.monotonicTimeNanosUnsafe()
  }

  sleep(duration: Duration.Duration): Effect.Effect<void> {
    return this.real.sleep(duration)
  }
}

const clocks = new WeakMap<Clock.Clock, MeasuringClock>()

const measuringBy = (clock: Clock.Clock): MeasuringClock => {
  if (clock instanceof MeasuringClock) return clock
  const known = clocks.get(clock) ?? new MeasuringClock(clock)
  clocks.set(clock, known)
  return known
}

/**
 * Effect's own caches measure by `currentTimeMillis`, the wall clock: set back by an hour, an
 * entry of one second lives for an hour. What runs in here reads monotonic time instead.
 */
export const measured = <A, E, R>(work: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.clockWith((clock) => Effect.provideService(work, Clock.Clock, measuringBy(clock)))

/** Gives work inside `measured` the clock back. */
export const unmeasured = <A, E, R>(work: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.clockWith((clock) =>
    clock instanceof MeasuringClock ? Effect.provideService(work, Clock.Clock, clock.real) : work
  )
