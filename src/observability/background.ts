/**
 * Runs work again and again for as long as a scope lives. Every loop of the gateway runs here, and nowhere else
 * (`test/unit/background.test.ts`).
 *
 * A run that fails or breaks is never the last. Each failure is counted in `tollgate_background_failures_total{task}`,
 * the first of an outage is logged as a warning, and so is the end of the outage as information.
 */
import { Cause, Duration, Effect, Random, type Scope } from "effect"
import { type BackgroundTask, Metrics } from "./Metrics.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { OutageLog } from "../infra/OutageLog.ts"

/** Whether a task works, for whoever runs it. */
export interface Outage {
  /** A run failed. Never fails itself. */
  failed(cause: Cause.Cause<unknown>): Effect.Effect<void>
  /** A run succeeded. */
  readonly over: Effect.Effect<void>
}

const warn = (task: BackgroundTask, cause: Cause.Cause<unknown>): Effect.Effect<void> =>
  Effect.logWarning("background task failed", { task }, cause)

/** `line` is logged for the first failure of an outage: for causes that must not be shown whole. */
export const makeOutage = (
  task: BackgroundTask,
  line: (cause: Cause.Cause<unknown>) => Effect.Effect<void> = (cause) => warn(task, cause)
): Effect.Effect<Outage, never, Metrics> =>
  Effect.gen(function* () {
    const [metrics, nowMs] = [yield* Metrics, yield* makeMonotonicMs]
    const log = new OutageLog(nowMs)
    return {
      failed: (cause) =>
        Effect.andThen(
          metrics.backgroundFailed(task),
          log.failed(() => line(cause), Effect.logDebug("background task failed again", { task }, cause))
        ),
      over: log.over(Effect.logInfo("background task works again", { task }))
    }
  })

export interface Pace {
  /** waits for the next run; told whether the last one failed */
  readonly pause: (failed: boolean) => Effect.Effect<unknown>
  /** whether the first run waits as well; default false */
  readonly pauseFirst?: boolean
}

/** Runs `ms` apart, counted from the end of one to the begin of the next. */
export const spaced = (ms: number): Pace => ({ pause: () => Effect.sleep(Duration.millis(ms)) })

/** The same, 80 to 120 % of it, so that replicas do not move in step. */
export const jittered = (ms: number): Pace => ({
  pause: () => Effect.flatMap(Random.nextBetween(0.8 * ms, 1.2 * ms), (wait) => Effect.sleep(wait))
})

/** The same pace, but nothing happens before its first pause. */
export const later = (pace: Pace): Pace => ({ ...pace, pauseFirst: true })

/**
 * Runs `work` at `pace` while the scope lives. `outage` is the task's own, for work that says itself when it is well,
 * or whose failures need a line of their own.
 */
export const background = Effect.fnUntraced(function* <E, R>(
  task: BackgroundTask,
  work: Effect.Effect<unknown, E, R>,
  pace: Pace,
  outage?: Outage
): Effect.fn.Return<void, never, R | Metrics | Scope.Scope> {
  const { failed, over } = outage ?? (yield* makeOutage(task))
  const run = Effect.matchCauseEffect(work, {
    onFailure: (cause) => Effect.as(failed(cause), true),
    onSuccess: () => Effect.as(over, false)
  })
  // A line that cannot be logged must not end the loop either.
  const guarded = Effect.catchCause(run, () => Effect.succeed(true))
  const loop = Effect.forever(Effect.flatMap(guarded, pace.pause))
  const started = pace.pauseFirst === true ? Effect.andThen(pace.pause(false), loop) : loop
  yield* Effect.forkScoped(started, { startImmediately: true })
})
