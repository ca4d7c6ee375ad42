/**
 * Compares live counters with the ledger and repairs differences. They come from a process that died between closing an
 * intent and settling it, from a lost settlement, or from a hold that was counted twice to be safe.
 *
 * Only an idle account is compared. The counters are read first, then the ledger. A request in progress at either moment
 * shows as an open lease or an open intent. A request that came and went in between changes the version of the counters,
 * and then the repair does nothing. A busy account is compared later. An account with tokens held beyond a lease is not
 * idle: `expiredHolds.ts` settles them first.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Array as Arr, Clock, Context, Effect, Layer, type Scope, Schema } from "effect"
import { type Period, periods } from "../domain/Limits.ts"
import { Meter, type Snapshot } from "../gates/meter/Meter.ts"
import type { Account } from "../domain/Reservation.ts"
import { makeMonotonicMs, timeoutDetached } from "../infra/time.ts"
import { background, jittered, later } from "../observability/background.ts"
import { daysOf, sumsByPeriod } from "./periods.ts"
import { settleExpired } from "./expiredHolds.ts"
import { type BackgroundTask, Metrics } from "../observability/Metrics.ts"
import { SuspectAccounts } from "../gates/limits/SuspectAccounts.ts"

export interface CounterReconcilerOptions {
  /** seconds between two comparisons; default 10 */
  readonly everyS?: number
  /** seconds between two comparisons of suspect accounts, whose counters may be one hold too high; default 1 */
  readonly suspectsEveryS?: number
}

/** Accounts compared in one round, and accounts that may wait for one. */
const batch = 1000
const capacity = 100_000
/** How long a suspect account is compared more often. */
const soonMs = 30_000

const Truth = Schema.Struct({
  key_id: Schema.String,
  open: Schema.Finite,
  day: Schema.Finite,
  month: Schema.Finite,
  total: Schema.Finite
})
type Truth = typeof Truth.Type
const decodeTruths = Schema.decodeUnknownEffect(Schema.Array(Truth))

/** Keys per statement. It sums all days of a key: for 1,000 keys with three years each that took 4 s. */
const atOnce = 100

/** The first and last day of the month are computed once: computing the month of each row costs more than adding it. */
const truthsOf = (pg: PgClient.PgClient, keys: ReadonlyArray<string>, instant: string) =>
  timeoutDetached("3 seconds")(pg`
    WITH k AS (SELECT DISTINCT unnest(ARRAY(SELECT jsonb_array_elements_text(${pg.json(keys)}))::uuid[]) AS key_id),
      at AS MATERIALIZED (${daysOf(pg, pg`${instant}::text::timestamptz`)})
    SELECT k.key_id::text,
      (SELECT count(*) FROM intents i WHERE i.key_id = k.key_id)::float8 AS open,
      ${sumsByPeriod(pg, { day: "l.day", tokens: "l.tokens_in + l.tokens_out" })}
    FROM k CROSS JOIN at LEFT JOIN ledger l ON l.key_id = k.key_id
    GROUP BY k.key_id`).pipe(Effect.flatMap(decodeTruths))

/** The ledger's totals of each key, and the number of its open intents. */
export const readLedgerTotals = (pg: PgClient.PgClient, keys: ReadonlyArray<string>, at: number) =>
  Effect.map(
    Effect.forEach(Arr.chunksOf(keys, atOnce), (some) => truthsOf(pg, some, new Date(at).toISOString())),
    (found) => found.flat()
  )

/** Tokens by which the counters differ from the ledger, summed over the periods that have counters. */
const driftOf = (survey: Snapshot, truth: Truth): number =>
  periods.reduce((sum, period: Period) => {
    const counted = survey.totals[period]
    return counted === undefined ? sum : sum + Math.abs(counted - truth[period])
  }, 0)

const nameOf = (account: Account): string => `${account.group}/${account.key}`

const make = (options: CounterReconcilerOptions) =>
  Effect.gen(function* () {
    const [pg, meter, metrics] = [yield* PgClient.PgClient, yield* Meter, yield* Metrics]
    const nowMs = yield* makeMonotonicMs
    /** accounts that changed since their last successful comparison */
    const touched = new Map<string, Account>()
    const touch = (account: Account): void => {
      if (touched.size < capacity) touched.set(nameOf(account), account)
    }
    /** accounts whose counters were just rebuilt from the ledger, or whose process died */
    const suspects = new Map<string, Account & { readonly until: number }>()
    const suspect = (account: Account): void => {
      if (suspects.size < capacity) {
        suspects.set(nameOf(account), { ...account, until: nowMs() + soonMs })
      }
    }
    const found = { touched: 0, suspects: 0 }
    yield* metrics.probe({
      name: "tollgate_counter_drift_tokens",
      help: "Tokens by which live counters at rest differed from the ledger when they were last compared",
      read: Effect.sync(() => found.touched + found.suspects)
    })

    /** Returns by how many tokens the idle accounts differed. */
    const compare = Effect.fnUntraced(function* (waiting: ReadonlyMap<string, Account>) {
      const at = yield* Clock.currentTimeMillis
      const accounts = [...waiting.values()].slice(0, batch)
      const surveys = yield* Effect.forEach(
        accounts,
        (account) => {
          // A change from here on touches it again.
          touched.delete(nameOf(account))
          return Effect.map(meter.snapshot(account, at), (survey) => ({ account, survey }))
        },
        { concurrency: 8 }
      ).pipe(Effect.onError(() => Effect.sync(() => accounts.forEach(touch))))
      const left = surveys.filter(({ survey }) => survey.lapsed.length > 0)
      for (const { account, survey } of surveys) {
        if (survey.open > 0 || survey.lapsed.length > 0) touch(account)
        if (survey.lapsed.length > 0 && !suspects.has(nameOf(account))) suspect(account)
      }
      if (left.length > 0) {
        const ended = left.map(({ account, survey }) => ({ account, ids: survey.lapsed }))
        yield* Effect.onError(settleExpired(pg, meter, ended, at), () =>
          Effect.sync(() => accounts.forEach(touch))
        )
      }
      // An account without counters has nothing to compare.
      const idle = surveys.filter(
        ({ survey: { lapsed, open, totals } }) =>
          open === 0 && lapsed.length === 0 && periods.some((period) => totals[period] !== undefined)
      )
      let drift = 0
      if (idle.length > 0) {
        const ledger = yield* readLedgerTotals(
          pg,
          idle.map(({ account }) => account.key),
          at
        ).pipe(Effect.onError(() => Effect.sync(() => idle.forEach(({ account }) => touch(account)))))
        const byKey = new Map(ledger.map((truth) => [truth.key_id, truth]))
        for (const { account, survey } of idle) {
          const truth = byKey.get(account.key)
          if (truth === undefined) continue
          if (truth.open > 0) {
            touch(account)
            continue
          }
          const difference = driftOf(survey, truth)
          if (difference === 0) {
            suspects.delete(nameOf(account))
            continue
          }
          // Compare it once more, whether it is repaired now or a request came in between.
          touch(account)
          if (!(yield* meter.repair(account, at, survey.mark, truth))) continue
          drift += difference
          yield* Effect.logWarning("counters repaired", { key_id: account.key, tokens: difference })
        }
      }
      return drift
    })
    /** A suspect account that stays busy is left to the slower comparison. */
    const forgetOld = Effect.sync(() => {
      const now = nowMs()
      for (const [name, { until }] of suspects) if (until < now) suspects.delete(name)
    })
    const compareRepeatedly = (
      task: BackgroundTask,
      name: keyof typeof found,
      waiting: ReadonlyMap<string, Account>,
      everyS: number
    ): Effect.Effect<void, never, Metrics | Scope.Scope> =>
      background(
        task,
        Effect.andThen(
          forgetOld,
          Effect.suspend(() => compare(waiting))
        ).pipe(
          Effect.tap((drift) => Effect.sync(() => void (found[name] = drift))),
          // The difference is unknown then. The last figure would look valid.
          Effect.tapCause(() => Effect.sync(() => void (found[name] = Number.NaN)))
        ),
        later(jittered(everyS * 1000))
      )
    yield* compareRepeatedly("counter_comparison", "touched", touched, options.everyS ?? 10)
    yield* compareRepeatedly("suspect_counter_comparison", "suspects", suspects, options.suspectsEveryS ?? 1)

    const watched = Meter.of({
      ...meter,
      load: (account, totals) => Effect.map(meter.load(account, totals), () => suspect(account)),
      // After a refusal too: a dead process may hold the tokens that were missing.
      reserve: (claims, ask) =>
        Effect.map(meter.reserve(claims, ask), (verdict) => {
          touch(claims.account)
          return verdict
        }),
      settle: (reservation, used, options) =>
        Effect.map(meter.settle(reservation, used, options), (headroom) => {
          const { account, budgets } = reservation.claims
          if (periods.some((period) => budgets[period] !== undefined)) touch(account)
          return headroom
        })
    })
    return Context.add(Context.make(Meter, watched), SuspectAccounts, { add: suspect })
  })

/** Provides the same Meter, and compares what it counts with the ledger while the layer lives. */
export const layerCounterReconciler = (
  options: CounterReconcilerOptions = {}
): Layer.Layer<Meter | SuspectAccounts, never, Meter | PgClient.PgClient | Metrics> =>
  Layer.effectContext(make(options))
