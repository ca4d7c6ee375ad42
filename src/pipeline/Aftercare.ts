/**
 * Work that a request leaves behind when a store was down at the wrong moment: a reservation that may or may not
 * have been made, a settlement that found nobody. It is tried again, a bounded number of times, after the
 * request is gone; every verb it repeats is idempotent. Shutdown waits for it.
 */
import { Context, Duration, Effect, FiberSet, Layer, Schedule } from "effect"

/** More than this many open ends mean that the store is gone for good: the ledger then repairs the counters. */
const capacity = 10_000

export class Aftercare extends Context.Service<
  Aftercare,
  {
    /** Repeats `work` in the background until it succeeds, about a minute at most. Never fails, never waits. */
    later(what: string, work: Effect.Effect<unknown, unknown>): Effect.Effect<void>
    /** how many open ends there are now */
    readonly backlog: Effect.Effect<number>
  }
>()("tollgate/pipeline/Aftercare") {
  static readonly layer = (options: { readonly drainMs: number }) =>
    Layer.effect(
      Aftercare,
      Effect.gen(function* () {
        const fibers = yield* FiberSet.make<void>()
        yield* Effect.addFinalizer(() =>
          FiberSet.awaitEmpty(fibers).pipe(Effect.timeoutOption(Duration.millis(options.drainMs)))
        )
        // Often enough that what a store missed reaches it before a lease ends that was given before it went away: until
        // then the hold speaks for what was used, and after it nobody would.
        const schedule = Schedule.min([Schedule.exponential("100 millis"), Schedule.spaced("500 millis")])
        return {
          later: (what, work) =>
            Effect.gen(function* () {
              if ((yield* FiberSet.size(fibers)) >= capacity) {
                return yield* Effect.logError(`aftercare is full, dropped: ${what}`)
              }
              yield* FiberSet.run(
                fibers,
                work.pipe(
                  Effect.retry({ schedule, times: 120 }),
                  Effect.catchCause((cause) => Effect.logError(`aftercare gave up: ${what}`, cause)),
                  Effect.asVoid
                )
              )
            }),
          backlog: FiberSet.size(fibers)
        }
      })
    )
}
