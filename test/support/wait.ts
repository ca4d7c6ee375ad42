/**
 * How a test waits: for a condition, never for a time. Where real time must pass, a comment says why.
 */
import { availableParallelism, loadavg } from "node:os"
import { Effect } from "effect"

/**
 * How long a test waits for what comes at once on an idle machine. Only what never comes takes so long, so it is generous, and
 * shorter than the limit of a test (`vitest.config.ts`).
 */
export const maxWaitMs = 120_000

/** `maxWorkers` of `vitest.config.ts` */
const workers = 4

/**
 * An upper bound for what takes `ms` at most on an idle machine. The more there is to do for each core, the longer it is. The load is
 * an average of a minute, which knows nothing of a run that has just begun: so it is never taken as less than the workers of one.
 */
export const atMost = (ms: number): number =>
  ms * Math.max(1, (2 * Math.max(workers, loadavg()[0] ?? 0)) / availableParallelism())

/** Asks until the answer is there, for at most `ms`. Returns the last answer either way. */
export const eventually = <A, E, R>(
  ask: Effect.Effect<A, E, R>,
  until: (answer: A) => boolean,
  ms = maxWaitMs
): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    const deadline = performance.now() + ms
    const again: Effect.Effect<A, E, R> = Effect.filterOrElse(
      ask,
      (answer) => until(answer) || performance.now() > deadline,
      () => Effect.delay(again, "20 millis")
    )
    return again
  })

/** Waits until `holds`. Returns whether it does. */
export const comesTrue = (holds: () => boolean, ms = maxWaitMs): Effect.Effect<boolean> =>
  eventually(Effect.sync(holds), Boolean, ms)

const tickMs = 20
let lostMs = 0
let [tickedAt, usedAt] = [performance.now(), process.cpuUsage()]
const tick = (): number => {
  const [now, used] = [performance.now(), process.cpuUsage(usedAt)]
  const ownMs = (used.user + used.system) / 1000
  lostMs += Math.max(0, now - tickedAt - tickMs - ownMs)
  tickedAt = now
  usedAt = process.cpuUsage()
  return now - lostMs
}
setInterval(tick, tickMs).unref()

/**
 * Monotonic ms without the time in which other processes had the machine, so that an upper bound holds for this process and
 * not for the machine. Time that this process itself computes is counted.
 */
export const ownTimeMs = tick

/** Returns a function that tells the ms since now, by `ownTimeMs`. */
export const makeStopwatch = (): (() => number) => {
  const since = ownTimeMs()
  return () => ownTimeMs() - since
}
