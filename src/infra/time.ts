/**
 * Time that is measured: a clock that only grows, a timer for the hot path, and a deadline that never waits for the work
 * it stops. The wall clock says when something happened and is never subtracted: NTP, an operator or a hypervisor may set
 * it by an hour at any moment. `test/unit/clocks.test.ts` names the files that may read the wall clock, and why.
 *
 * *Gotchas* The monotonic clock stands still while the machine sleeps.
 */
import { Cause, Clock, Context, Duration, Effect } from "effect"

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

/**
 * Calls `ring` after `ms`, unless what it answers is called first. For the hot path: a race against `Effect.sleep` costs
 * two fibers and a dozen steps; where a callback is waited for anyway, one timer does the same (`npm run bench`).
 */
export type Timer = (ms: number, ring: () => void) => () => void

const realClock = Context.get(Context.empty(), Clock.Clock)

const nothing = (): void => undefined

/**
 * Node runs the timers that are due before it polls for I/O. After a stall longer than `ms` the answers may be in the
 * sockets' buffers already: so the timer fires one `setImmediate` later, and those answers are read first.
 */
const onRealClock: Timer = (ms, ring) => {
  if (ms === Number.POSITIVE_INFINITY) return nothing
  let look: NodeJS.Immediate | undefined
  const timer = setTimeout(() => void (look = setImmediate(ring)), ms)
  return () => {
    clearTimeout(timer)
    clearImmediate(look)
  }
}

/** On the clock of a context: Node's own timers, or a test's clock. */
export const timerOf = (context: Context.Context<never>): Timer => {
  if (Context.get(context, Clock.Clock) === realClock) return onRealClock
  const run = Effect.runForkWith(context)
  return (ms, ring) => {
    if (ms === Number.POSITIVE_INFINITY) return nothing
    const fiber = run(Effect.andThen(Effect.sleep(ms), Effect.sync(ring)))
    return () => fiber.interruptUnsafe()
  }
}

/** On the clock of the context it is made in. */
export const makeTimer: Effect.Effect<Timer> = Effect.map(Effect.context<never>(), timerOf)

/**
 * Waits for `register`'s callback, at most `ms`; then it is `late`. What `register` answers is called when nobody waits
 * any more, be it for the alarm or for an interruption.
 */
export const callbackWithTimeout = <A, E>(
  alarm: Timer,
  ms: number,
  register: (resume: (outcome: Effect.Effect<A, E>) => void) => () => void,
  late: () => Effect.Effect<A, E>
): Effect.Effect<A, E> =>
  Effect.callback((resume) => {
    let callOff = nothing
    let settled = false
    const settle = (outcome: Effect.Effect<A, E>) => {
      if (settled) return
      settled = true
      callOff()
      resume(outcome)
    }
    const forget = register(settle)
    // It may have been there already.
    if (settled) return undefined
    callOff = alarm(ms, () => {
      settle(late())
      forget()
    })
    return Effect.sync(() => {
      settled = true
      callOff()
      forget()
    })
  })

/**
 * Fails with a `TimeoutError` when there is no outcome after `duration`; never waits for the work to stop.
 *
 * `Effect.timeout` interrupts the work and waits until it has ended. A statement on a frozen Postgres needs five seconds
 * for that (measured: its client waits for an answer to the cancellation), but the gateway owes its 503 within about one.
 * Here the work runs in a fiber of its own: at the deadline the caller goes on, and the interruption ends in the background.
 */
export const timeoutDetached =
  (duration: Duration.Input) =>
  <A, E, R>(work: Effect.Effect<A, E, R>): Effect.Effect<A, E | Cause.TimeoutError, R> =>
    Effect.contextWith((context: Context.Context<R>) =>
      callbackWithTimeout<A, E | Cause.TimeoutError>(
        timerOf(context),
        Duration.toMillis(duration),
        (resume) => {
          const fiber = Effect.runForkWith(context)(work)
          fiber.addObserver(resume)
          return () => fiber.interruptUnsafe()
        },
        () => Effect.fail(new Cause.TimeoutError(`no answer within ${Duration.toMillis(duration)} ms`))
      )
    )
