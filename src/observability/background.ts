/**
 * Repeats background work while a scope lives. Every loop of the gateway runs here (`test/unit/background.test.ts`).
 *
 * The loop continues after a failure or a defect. Each failure is counted in
 * `tollgate_background_failures_total{task}`. The first failure of an outage is logged as a warning, and the end of the
 * outage as information.
 */
import { Cause, Duration, Effect, Random, type Scope } from "effect"
import { type BackgroundTask, Metrics } from "./Metrics.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { OutageLog } from "../infra/OutageLog.ts"

/** Records whether a task works. */
export interface Outage {
  /** Records a failed run. Never fails itself. */
  failed(cause: Cause.Cause<unknown>): Effect.Effect<void>
  /** Records a successful run. */
  readonly over: Effect.Effect<void>
}

const warn = (task: BackgroundTask, cause: Cause.Cause<unknown>): Effect.Effect<void> =>
  Effect.logWarning("background task failed", { task }, cause)

/** `line` is logged for the first failure of an outage. A task passes its own line when the log must not contain the cause. */
export const makeOutage = (
  task: BackgroundTask,
  line: (cause: Cause.Cause<unknown>) => Effect.Effect<void> = (cause) => warn(task, cause)
): Effect.Effect<Outage, never, Metrics> =>
  Effect.gen(function* () {
    const metrics = yield* Metrics
    const nowMs = yield* makeMonotonicMs
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
  /** waits for the next run; `failed`: whether the last run failed */
  readonly pause: (failed: boolean) => Effect.Effect<unknown>
  /** whether the first run waits too; default false */
  readonly pauseFirst?: boolean
}

/** Waits `ms` from the end of one run to the start of the next. */
export const spaced = (ms: number): Pace => ({ pause: () => Effect.sleep(Duration.millis(ms)) })

/** Waits 80 to 120 % of `ms`, so that replicas do not run at the same time. */
export const jittered = (ms: number): Pace => ({
  pause: () => Effect.flatMap(Random.nextBetween(0.8 * ms, 1.2 * ms), (wait) => Effect.sleep(wait))
})

/** The same pace, with a pause before the first run. */
export const later = (pace: Pace): Pace => ({ ...pace, pauseFirst: true })

/**
 * Repeats `work` at `pace` while the scope lives. A task passes its own `outage` when it reports its success itself, or when
 * its failures need a log line of their own.
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
  // A failing logger must not end the loop.
  const guarded = Effect.catchCause(run, () => Effect.succeed(true))
  const loop = Effect.forever(Effect.flatMap(guarded, pace.pause))
  const started = pace.pauseFirst === true ? Effect.andThen(pace.pause(false), loop) : loop
  yield* Effect.forkScoped(started, { startImmediately: true })
})
