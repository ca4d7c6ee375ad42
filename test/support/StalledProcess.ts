/**
 * A process that is busy while a deadline passes and the answer comes. Node ends timers that are due before it reads what has come,
 * so who waits for both hears of the deadline first. No time passes: the test ends the sleeps itself.
 */
import { MessageChannel } from "node:worker_threads"
import { Clock, Duration, Effect } from "effect"

export const makeStalledProcess = Effect.gen(function* () {
  const { port1: ours, port2: theirs } = yield* Effect.acquireRelease(
    Effect.sync(() => new MessageChannel()),
    ({ port1 }) => Effect.sync(() => port1.close())
  )
  let nowMs = 0
  const sleeping = new Set<{ readonly until: number; readonly end: () => void }>()
  const nanos = () => BigInt(nowMs) * 1_000_000n
  const clock: Clock.Clock = {
    currentTimeMillisUnsafe: () => nowMs,
    currentTimeMillis: Effect.sync(() => nowMs),
    currentTimeNanosUnsafe: nanos,
    currentTimeNanos: Effect.sync(nanos),
    monotonicTimeNanosUnsafe: nanos,
    monotonicTimeNanos: Effect.sync(nanos),
    sleep: (duration) =>
      Effect.callback<void>((resume) => {
        const sleeper = { until: nowMs + Duration.toMillis(duration), end: () => resume(Effect.void) }
        sleeping.add(sleeper)
        return Effect.sync(() => void sleeping.delete(sleeper))
      })
  }
  return {
    /** Runs `work` by the clock of the process. */
    on: <A, E, R>(work: Effect.Effect<A, E, R>) => Effect.provideService(work, Clock.Clock, clock),
    /** an answer from outside */
    answer: Effect.callback<void>((resume) => void ours.once("message", () => resume(Effect.void))),
    /** The answer comes, and then `ms` are over, before this process looks. */
    stall: (ms: number) =>
      Effect.callback<void>((resume) => {
        // In an immediate, as after a timer: the next ones come when Node has read what is there.
        setImmediate(() => {
          // A port has no origin.
          // oxlint-disable-next-line unicorn/require-post-message-target-origin
          theirs.postMessage("here")
          nowMs += ms
          for (const sleeper of sleeping) {
            if (sleeper.until > nowMs) continue
            sleeping.delete(sleeper)
            sleeper.end()
          }
          resume(Effect.void)
        })
      })
  }
})
