/**
 * A deadline that holds even when the work cannot be stopped in time.
 *
 * `Effect.timeout` interrupts the work and waits until it has ended. A statement on a frozen Postgres needs five
 * seconds for that (measured: its client waits for an answer to the cancellation), far too long for a gateway that
 * has promised its 503 within about one. Here the work runs in a fiber of its own: at the deadline the caller goes
 * on, and the interruption takes its time in the background.
 */
import { Cause, type Context, Duration, Effect } from "effect"
import { timerOf, callbackWithTimeout } from "./time.ts"

/** Fails with a `TimeoutError` when there is no outcome after `duration`; never waits for the work to stop. */
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
