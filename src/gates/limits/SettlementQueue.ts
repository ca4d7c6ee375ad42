/**
 * A retry queue in the process, for work that failed because a store was down: an uncertain reservation, or a
 * settlement. It is retried a bounded number of times after the request has ended. Every repeated step is idempotent.
 * The shutdown waits for the queue.
 *
 * A request may use more than it held (its prompt was longer than estimated, and the hold was cut to what remained).
 * Until its settlement is delivered, the counters are below the ledger. So no request of an account is admitted
 * before this process has delivered its settlements.
 */
import { Cause, Context, Deferred, Duration, Effect, FiberSet, Layer, Schedule } from "effect"
import { untraced } from "../../observability/Trace.ts"
import { MeterDown } from "../meter/Meter.ts"
import type { Account } from "../../domain/Reservation.ts"
import { makeOutage } from "../../observability/background.ts"

/** With more waiting settlements than this the store is considered lost; the ledger then repairs the counters. */
const capacity = 10_000

type Pending = Effect.Effect<void, MeterDown>

const nameOf = ({ group, key }: Account): string => `${group}/${key}`

const make = Effect.fnUntraced(function* (options: { readonly drainMs: number }) {
  const fibers = yield* FiberSet.make<void>()
  const outage = yield* makeOutage("settlement_retry", (cause) =>
    Effect.logWarning("settlement retry failed", cause)
  )
  yield* Effect.addFinalizer(() =>
    FiberSet.awaitEmpty(fibers).pipe(Effect.timeoutOption(Duration.millis(options.drainMs)))
  )
  // Often enough that requests seldom wait for it. The next request of the account delivers it sooner.
  const schedule = Schedule.min([Schedule.exponential("100 millis"), Schedule.spaced("500 millis")])
  /** Returns whether there was room for it. */
  const run = (what: string, work: Effect.Effect<void>) =>
    Effect.flatMap(FiberSet.size(fibers), (size) =>
      size >= capacity
        ? Effect.as(outage.failed(Cause.fail(`settlement retry queue full, dropped: ${what}`)), false)
        : Effect.as(FiberSet.run(fibers, untraced(work)), true)
    )
  const patiently = (what: string, work: Effect.Effect<unknown, unknown>): Effect.Effect<void> =>
    work.pipe(
      Effect.retry({ schedule, times: 120 }),
      Effect.matchCauseEffect({
        onSuccess: () => outage.over,
        onFailure: (cause) =>
          Effect.andThen(
            Effect.logError("settlement given up", { settlement: what }, cause),
            outage.failed(cause)
          )
      })
    )

  const debts = new Map<string, Set<Pending>>()
  const forget = (name: string, debt: Pending) => {
    const those = debts.get(name)
    those?.delete(debt)
    if (those?.size === 0) debts.delete(name)
  }
  /** Running deliveries. Further requests wait for them, so a store that is down is called once. */
  const payments = new Map<string, Deferred.Deferred<void, MeterDown>>()
  const pay = Effect.fnUntraced(function* (name: string) {
    // Another settlement may be pending after these.
    while (debts.has(name)) {
      const own = yield* Deferred.make<void, MeterDown>()
      const those = debts.get(name) ?? []
      const running = payments.get(name)
      if (running === undefined) {
        payments.set(name, own)
        yield* Effect.forEach([...those], (debt) => debt, { concurrency: 8, discard: true }).pipe(
          Effect.catchCause((cause) => Effect.fail(new MeterDown({ cause }))),
          Effect.ensuring(Effect.sync(() => payments.delete(name))),
          Effect.onExit((exit) => Deferred.done(own, exit))
        )
      } else yield* Deferred.await(running)
    }
  })

  return {
    /** Repeats `work` in the background until it succeeds, about a minute at most. Never fails, never waits. */
    retry: (what: string, work: Effect.Effect<unknown, unknown>) =>
      Effect.asVoid(run(what, patiently(what, work))),
    /** As `retry`, for a settlement: until it succeeds or is given up, `account` has a pending settlement. */
    enqueue: (account: Account, what: string, settling: Effect.Effect<unknown, MeterDown>) => {
      const name = nameOf(account)
      const debt: Pending = Effect.suspend(() =>
        // A request may have delivered it meanwhile.
        debts.get(name)?.has(debt) === true
          ? Effect.andThen(
              settling,
              Effect.sync(() => forget(name, debt))
            )
          : Effect.void
      )
      const owed = Effect.sync(() => void debts.set(name, (debts.get(name) ?? new Set()).add(debt)))
      // A settlement that is given up must not close the account for ever; the ledger has it.
      const given = Effect.sync(() => forget(name, debt))
      const trying = run(what, Effect.ensuring(patiently(what, debt), given))
      return Effect.flatMap(Effect.andThen(owed, trying), (taken) => (taken ? Effect.void : given))
    },
    /** Delivers the pending settlements of `account` now, or fails. */
    flush: (account: Account): Effect.Effect<void, MeterDown> => {
      const name = nameOf(account)
      return debts.has(name) ? pay(name) : Effect.void
    },
    /** number of waiting settlements */
    backlog: FiberSet.size(fibers)
  }
})

export class SettlementQueue extends Context.Service<SettlementQueue>()(
  "tollgate/gates/limits/SettlementQueue",
  { make }
) {
  static readonly layer = (options: { readonly drainMs: number }) =>
    Layer.effect(SettlementQueue, make(options))
}
