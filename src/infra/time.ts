/**
 * Measures time: a monotonic clock, and a deadline that does not wait for the work it stops. The
 * wall clock tells when something happened; times of the wall clock are never subtracted, because NTP, an operator or a
 * hypervisor may set it at any moment. `test/unit/clocks.test.ts` lists the files that may read the wall clock, and why.
 *
 * *Gotchas* The monotonic clock stands still while the machine sleeps.
 */
import { Cause, Clock, Context, Duration, Effect, Exit, Fiber } from "effect"

const realClock = Context.get(Context.empty(), Clock.Clock)

/**
 * Monotonic milliseconds of the clock of the context, which may be a test's clock. Only differences have a meaning. A request
 * reads it a dozen times, and the real clock of Effect makes a bigint each time.
 */
export const makeMonotonicMs: Effect.Effect<() => number> = Effect.map(Clock.Clock, (clock) =>
  clock === realClock
    ? performance.now.bind(performance)
    : () => Number(clock.monotonicTimeNanosUnsafe()) / 1e6
)

/**
 * Remembers the outcome of `work` for `ms`. Those who ask while it is found wait for the same one.
 *
 * Effect's own caches read the wall clock: when it is set back by an hour, an entry of one second lives for an hour.
 */
export const remembered = Effect.fnUntraced(function* <A, E, R>(work: Effect.Effect<A, E, R>, ms: number) {
  const nowMs = yield* makeMonotonicMs
  const [outcome, forget] = yield* Effect.cachedInvalidateWithTTL(work, Duration.infinity)
  let since = Number.NEGATIVE_INFINITY
  // Whoever asks runs it.
  // @effect-diagnostics-next-line returnEffectInGen:off
  return Effect.suspend(() => {
    if (nowMs() - since < ms) return outcome
    since = nowMs()
    return Effect.andThen(forget, outcome)
  })
})

/** Waits until Node has read what has arrived: Effect's scheduler goes on in the next check phase of the event loop. */
export const afterIo = Effect.yieldNow

/**
 * Fails with a `TimeoutError` when there is no outcome after `duration`; never waits for the work to stop.
 *
 * `Effect.timeout` interrupts the work and waits until it has ended. A statement on a frozen Postgres needs five seconds
 * for that (measured: its client waits for an answer to the cancellation), but the gateway must answer 503 within about one second.
 * Here the work runs in a fiber of its own: at the deadline the caller goes on, and the interruption ends in the background.
 *
 * Node runs the timers that are due before it polls for I/O. After a stall of this process the answers may be in the sockets'
 * buffers already: so they are read first.
 */
export const timeoutDetached =
  (duration: Duration.Input) =>
  <A, E, R>(work: Effect.Effect<A, E, R>): Effect.Effect<A, E | Cause.TimeoutError, R> => {
    const late = Effect.sleep(duration).pipe(
      Effect.andThen(afterIo),
      Effect.andThen(
        Effect.failSync(() => new Cause.TimeoutError(`no answer within ${Duration.toMillis(duration)} ms`))
      )
    )
    return Effect.acquireUseRelease(
      Effect.forkDetach(work, { startImmediately: true }),
      (fiber) => Effect.raceFirst(Fiber.join(fiber), late),
      (fiber, exit) =>
        Exit.isSuccess(exit)
          ? Effect.void
          : Effect.forkDetach(Fiber.interrupt(fiber), { startImmediately: true })
    )
  }
