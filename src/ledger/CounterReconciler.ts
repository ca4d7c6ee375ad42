/**
 * Compares live totals with the ledger and sets right what has drifted: a process that died between closing an intent
 * and settling it, a settlement that never got through, a hold that was counted twice to be on the safe side.
 *
 * Only an account at rest is compared. The counters are read first, then the ledger; a request that was under way at
 * either moment shows as an open lease or an open intent, and one that came and went in between changes the mark, so
 * that the repair does nothing. An account that is never at rest is compared when it is. What a request holds beyond
 * the end of its lease is no rest either: `expiredHolds.ts` asks the ledger what became of it.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Array as Arr, Clock, Context, Effect, Layer, type Scope, Schema } from "effect"
import { type Period, periods } from "../domain/Limits.ts"
import { Meter, type Snapshot } from "../gates/meter/Meter.ts"
import type { Account } from "../domain/Reservation.ts"
import { makeMonotonicMs, timeoutDetached } from "../infra/time.ts"
import { background, jittered, later } from "../observability/background.ts"
import { settleExpired } from "./expiredHolds.ts"
import { type BackgroundTask, Metrics } from "../observability/Metrics.ts"
import { SuspectAccounts } from "./SuspectAccounts.ts"

export interface CounterReconcilerOptions {
  /** seconds between two comparisons; default 10 */
  readonly everyS?: number
  /** seconds between two looks at counters that are in doubt, which may be a hold too high; default 1 */
  readonly doubtfulEveryS?: number
}

/** Accounts looked at in one round, and those that wait for one at most. */
const batch = 1000
const capacity = 100_000
/** How long counters that are in doubt are looked at more often. */
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

/** Keys a statement reads. All days a key has are summed up: of 1,000 with three years each that took 4 s, twice the bound. */
const atOnce = 100

/** The bounds of the month are found once: to ask each row for its month is dearer than to add it up. */
const truthsOf = (pg: PgClient.PgClient, keys: ReadonlyArray<string>, instant: string) =>
  timeoutDetached("3 seconds")(pg`
    WITH k AS (SELECT DISTINCT unnest(ARRAY(SELECT jsonb_array_elements_text(${pg.json(keys)}))::uuid[]) AS key_id),
      today AS (SELECT (${instant}::text::timestamptz AT TIME ZONE 'UTC')::date AS day),
      at AS MATERIALIZED (
        SELECT day, date_trunc('month', day)::date AS month, (date_trunc('month', day) + interval '1 month')::date AS next
        FROM today)
    SELECT k.key_id::text,
      (SELECT count(*) FROM intents i WHERE i.key_id = k.key_id)::float8 AS open,
      coalesce(sum(l.tokens_in + l.tokens_out) FILTER (WHERE l.day = at.day), 0)::float8 AS day,
      coalesce(sum(l.tokens_in + l.tokens_out) FILTER (WHERE l.day >= at.month AND l.day < at.next), 0)::float8 AS month,
      coalesce(sum(l.tokens_in + l.tokens_out), 0)::float8 AS total
    FROM k CROSS JOIN at LEFT JOIN ledger l ON l.key_id = k.key_id
    GROUP BY k.key_id`).pipe(Effect.flatMap(decodeTruths))

/** What the ledger has of each key, and how many of its intents are open. */
export const readLedgerTotals = (pg: PgClient.PgClient, keys: ReadonlyArray<string>, at: number) =>
  Effect.map(
    Effect.forEach(Arr.chunksOf(keys, atOnce), (some) => truthsOf(pg, some, new Date(at).toISOString())),
    (found) => found.flat()
  )

/** Tokens by which the counters there are differ from the ledger, all periods together. */
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
    /** accounts that something has happened to since they were last found right */
    const touched = new Map<string, Account>()
    const touch = (account: Account): void => {
      if (touched.size < capacity) touched.set(nameOf(account), account)
    }
    /** accounts whose counters came back from the ledger a moment ago, or where somebody died: compared as soon as they rest */
    const doubtful = new Map<string, Account & { readonly until: number }>()
    const doubt = (account: Account): void => {
      if (doubtful.size < capacity) {
        doubtful.set(nameOf(account), { ...account, until: nowMs() + soonMs })
      }
    }
    const found = { touched: 0, doubtful: 0 }
    yield* metrics.probe({
      name: "tollgate_counter_drift_tokens",
      help: "Tokens by which live counters at rest differed from the ledger when they were last compared",
      read: Effect.sync(() => found.touched + found.doubtful)
    })

    /** Answers by how many tokens the accounts at rest differed. */
    const look = Effect.fnUntraced(function* (waiting: ReadonlyMap<string, Account>) {
      const at = yield* Clock.currentTimeMillis
      const accounts = [...waiting.values()].slice(0, batch)
      const surveys = yield* Effect.forEach(
        accounts,
        (account) => {
          // What happens from here on touches it again.
          touched.delete(nameOf(account))
          return Effect.map(meter.snapshot(account, at), (survey) => ({ account, survey }))
        },
        { concurrency: 8 }
      ).pipe(Effect.onError(() => Effect.sync(() => accounts.forEach(touch))))
      const left = surveys.filter(({ survey }) => survey.lapsed.length > 0)
      for (const { account, survey } of surveys) {
        if (survey.open > 0 || survey.lapsed.length > 0) touch(account)
        if (survey.lapsed.length > 0 && !doubtful.has(nameOf(account))) doubt(account)
      }
      if (left.length > 0) {
        const ended = left.map(({ account, survey }) => ({ account, ids: survey.lapsed }))
        yield* Effect.onError(settleExpired(pg, meter, ended, at), () =>
          Effect.sync(() => accounts.forEach(touch))
        )
      }
      // One without counters has nothing that could be compared.
      const atRest = surveys.filter(
        ({ survey: { lapsed, open, totals } }) =>
          open === 0 && lapsed.length === 0 && periods.some((period) => totals[period] !== undefined)
      )
      let drift = 0
      if (atRest.length > 0) {
        const ledger = yield* readLedgerTotals(
          pg,
          atRest.map(({ account }) => account.key),
          at
        ).pipe(Effect.onError(() => Effect.sync(() => atRest.forEach(({ account }) => touch(account)))))
        const byKey = new Map(ledger.map((truth) => [truth.key_id, truth]))
        for (const { account, survey } of atRest) {
          const truth = byKey.get(account.key)
          if (truth === undefined) continue
          if (truth.open > 0) {
            touch(account)
            continue
          }
          const difference = driftOf(survey, truth)
          if (difference === 0) {
            doubtful.delete(nameOf(account))
            continue
          }
          // Looked at once more, whether it was repaired or something came in between.
          touch(account)
          if (!(yield* meter.repair(account, at, survey.mark, truth))) continue
          drift += difference
          yield* Effect.logWarning("counters repaired", { key_id: account.key, tokens: difference })
        }
      }
      return drift
    })
    /** One that is not at rest for so long is left to the slower round. */
    const forget = Effect.sync(() => {
      const now = nowMs()
      for (const [name, { until }] of doubtful) if (until < now) doubtful.delete(name)
    })
    const keepLooking = (
      task: BackgroundTask,
      name: keyof typeof found,
      waiting: ReadonlyMap<string, Account>,
      everyS: number
    ): Effect.Effect<void, never, Metrics | Scope.Scope> =>
      background(
        task,
        Effect.andThen(
          forget,
          Effect.suspend(() => look(waiting))
        ).pipe(
          Effect.tap((drift) => Effect.sync(() => void (found[name] = drift))),
          // Nobody knows it then: an old figure would look like a good one.
          Effect.tapCause(() => Effect.sync(() => void (found[name] = Number.NaN)))
        ),
        later(jittered(everyS * 1000))
      )
    yield* keepLooking("counter_comparison", "touched", touched, options.everyS ?? 10)
    yield* keepLooking("suspect_counter_comparison", "doubtful", doubtful, options.doubtfulEveryS ?? 1)

    const watched = Meter.of({
      ...meter,
      load: (account, totals) => Effect.map(meter.load(account, totals), () => doubt(account)),
      // A refusal too: it may be because of what somebody holds who is no more.
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
    return Context.add(Context.make(Meter, watched), SuspectAccounts, { add: doubt })
  })

/** The Meter below, watched: what it counts is compared with the ledger for as long as the layer lives. */
export const layerCounterReconciler = (
  options: CounterReconcilerOptions = {}
): Layer.Layer<Meter | SuspectAccounts, never, Meter | PgClient.PgClient | Metrics> =>
  Layer.effectContext(make(options))
