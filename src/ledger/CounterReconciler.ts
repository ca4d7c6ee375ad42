/**
 * Compares live counters with the ledger and repairs differences. They come from a process that died between closing an
 * intent and settling it, from a lost settlement, or from a hold that was counted twice to be safe.
 *
 * Only an idle account is compared. The counters are read first, then the ledger. A request in progress at either moment
 * shows as an open lease or an open intent. A request that came and went in between changes the version of the counters,
 * and then the repair does nothing. A busy account is compared later. An account with tokens held beyond a lease is not
 * idle: `expiredHolds.ts` settles them first.
 *
 * The counters of a tenant (a group of accounts) are compared when all its accounts are idle at once. A tenant with more than
 * `mostAccounts` accounts is not compared. Until then they may be too high, for the reasons above, and never too low.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Array as Arr, Clock, Context, Effect, Layer, type Scope, Schema } from "effect"
import { type Budgets, type Period, periods } from "../domain/Limits.ts"
import { Meter, type Snapshot } from "../gates/meter/Meter.ts"
import type { Account, CounterOwner } from "../domain/Reservation.ts"
import { accountOf, keysOfTenant } from "../gates/keys/accounts.ts"
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

/** Tenants compared in one round. Each takes two reads of the database. */
const tenantBatch = 50
/** Redis reads all of them in one script. */
const mostAccounts = 2000

const sums = { open: Schema.Finite, day: Schema.Finite, month: Schema.Finite, total: Schema.Finite }
const Truth = Schema.Struct({ account: Schema.String, ...sums })
type Truth = typeof Truth.Type
const decodeTruths = Schema.decodeUnknownEffect(Schema.Array(Truth))
const decodeTenantTruth = Schema.decodeUnknownEffect(Schema.Tuple([Schema.Struct(sums)]))
const decodeAccounts = Schema.decodeUnknownEffect(Schema.Array(Schema.Struct({ account: Schema.String })))

/** Accounts per statement. It sums all days of a key: for 1,000 keys with three years each that took 4 s. */
const atOnce = 100

/** The first and last day of the month are computed once: computing the month of each row costs more than adding it. */
const truthsOf = (pg: PgClient.PgClient, accounts: ReadonlyArray<string>, instant: string) =>
  timeoutDetached("3 seconds")(pg`
    WITH a AS (SELECT DISTINCT unnest(ARRAY(SELECT jsonb_array_elements_text(${pg.json(accounts)}))::uuid[]) AS id),
      k AS (SELECT id AS account, id AS key_id FROM a
        UNION SELECT a.id, o.id FROM a JOIN api_keys o ON o.budget_account = a.id),
      at AS MATERIALIZED (${daysOf(pg, pg`${instant}::text::timestamptz`)})
    SELECT k.account::text,
      (SELECT count(*) FROM intents i WHERE i.key_id IN (SELECT o.key_id FROM k o WHERE o.account = k.account))::float8 AS open,
      ${sumsByPeriod(pg, { day: "l.day", tokens: "l.tokens_in + l.tokens_out" })}
    FROM k CROSS JOIN at LEFT JOIN ledger l ON l.key_id = k.key_id
    GROUP BY k.account`).pipe(Effect.flatMap(decodeTruths))

/** The ledger's totals of each account, and the number of its open intents. */
export const readLedgerTotals = (pg: PgClient.PgClient, accounts: ReadonlyArray<string>, at: number) =>
  Effect.map(
    Effect.forEach(Arr.chunksOf(accounts, atOnce), (some) => truthsOf(pg, some, new Date(at).toISOString())),
    (found) => found.flat()
  )

/** The same of a tenant. */
const readTenantTotals = (pg: PgClient.PgClient, tenant: string, at: number) =>
  timeoutDetached("3 seconds")(pg`
    WITH at AS MATERIALIZED (${daysOf(pg, pg`${new Date(at).toISOString()}::text::timestamptz`)})
    SELECT (SELECT count(*) FROM intents WHERE key_id IN (${keysOfTenant(pg, tenant)}))::float8 AS open,
      ${sumsByPeriod(pg, { day: "l.day", tokens: "l.tokens_in + l.tokens_out" })}
    FROM at LEFT JOIN ledger l ON l.tenant_id = ${tenant}::text::uuid`).pipe(
    Effect.flatMap(decodeTenantTruth),
    Effect.map(([totals]) => totals)
  )

/** The accounts of a tenant, one more than `mostAccounts` at most. */
const readAccounts = (pg: PgClient.PgClient, tenant: string) =>
  timeoutDetached("3 seconds")(pg`
    SELECT DISTINCT ${accountOf(pg, "k")}::text AS account FROM api_keys k
    WHERE k.tenant_id = ${tenant}::text::uuid LIMIT ${mostAccounts + 1}`).pipe(
    Effect.flatMap(decodeAccounts),
    Effect.map((rows) => rows.map(({ account }) => account))
  )

/** Tokens by which the counters differ from the ledger, summed over the periods that have counters. */
const driftOf = (survey: Pick<Snapshot, "totals">, truth: Omit<Truth, "account">): number =>
  periods.reduce((sum, period: Period) => {
    const counted = survey.totals[period]
    return counted === undefined ? sum : sum + Math.abs(counted - truth[period])
  }, 0)

const hasAny = (budgets: Budgets = {}): boolean => periods.some((period) => budgets[period] !== undefined)

const nameOf = (account: Account): string => `${account.group}/${account.key}`

const make = (options: CounterReconcilerOptions) =>
  Effect.gen(function* () {
    const [pg, meter, metrics] = [yield* PgClient.PgClient, yield* Meter, yield* Metrics]
    const nowMs = yield* makeMonotonicMs
    /** in the periods that are compared */
    const present = Clock.currentTimeMillis
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
    /** tenants whose counters changed or were rebuilt since their last successful comparison */
    const tenants = new Set<string>()
    const touchTenant = (tenant: string): void => {
      if (tenants.size < capacity) tenants.add(tenant)
    }
    const found = { touched: 0, suspects: 0, tenants: 0 }
    yield* metrics.probe({
      name: "tollgate_counter_drift_tokens",
      help: "Tokens by which live counters at rest differed from the ledger when they were last compared",
      read: Effect.sync(() => found.touched + found.suspects + found.tenants)
    })

    /** Returns by how many tokens the idle accounts differed. */
    const compare = Effect.fnUntraced(function* (waiting: ReadonlyMap<string, Account>) {
      const at = yield* present
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
        const byAccount = new Map(ledger.map((truth) => [truth.account, truth]))
        for (const { account, survey } of idle) {
          const truth = byAccount.get(account.key)
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
    /** Returns by how many tokens the counters of a tenant differed, if all its accounts are idle. */
    const compareTenant = Effect.fnUntraced(function* (tenant: string, at: number) {
      const accounts = yield* readAccounts(pg, tenant)
      if (accounts.length > mostAccounts) return 0
      const survey = yield* meter.snapshotGroup(tenant, accounts, at)
      if (!periods.some((period) => survey.totals[period] !== undefined)) return 0
      const truth = survey.open > 0 ? undefined : yield* readTenantTotals(pg, tenant, at)
      const isIdle = truth !== undefined && truth.open === 0
      const difference = isIdle ? driftOf(survey, truth) : 0
      // Compare it again, whether it is busy, is repaired now, or a request came in between.
      if (!isIdle || difference > 0) touchTenant(tenant)
      if (difference === 0 || truth === undefined) return 0
      if (!(yield* meter.repairGroup(tenant, accounts, at, survey.mark, truth))) return 0
      yield* Effect.logWarning("counters of a tenant repaired", { tenant_id: tenant, tokens: difference })
      return difference
    })
    const compareTenants = Effect.gen(function* () {
      const at = yield* present
      let drift = 0
      for (const tenant of [...tenants].slice(0, tenantBatch)) {
        // A change from here on touches it again.
        tenants.delete(tenant)
        drift += yield* Effect.onError(compareTenant(tenant, at), () =>
          Effect.sync(() => touchTenant(tenant))
        )
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

    yield* background(
      "tenant_counter_comparison",
      compareTenants.pipe(
        Effect.tap((drift) => Effect.sync(() => void (found.tenants = drift))),
        Effect.tapCause(() => Effect.sync(() => void (found.tenants = Number.NaN)))
      ),
      later(jittered((options.everyS ?? 10) * 1000))
    )

    const touchOwner = ({ group, key }: CounterOwner): void =>
      key === undefined ? touchTenant(group) : suspect({ group, key })
    const watched = Meter.of({
      ...meter,
      load: (owner, counters) => Effect.map(meter.load(owner, counters), () => touchOwner(owner)),
      // After a refusal too: a dead process may hold the tokens that were missing.
      reserve: (claims, ask) =>
        Effect.map(meter.reserve(claims, ask), (verdict) => {
          touch(claims.account)
          if (hasAny(claims.tenantBudgets)) touchTenant(claims.account.group)
          return verdict
        }),
      settle: (reservation, used, options) =>
        Effect.map(meter.settle(reservation, used, options), (headroom) => {
          const { account, budgets, tenantBudgets } = reservation.claims
          if (hasAny(budgets)) touch(account)
          if (hasAny(tenantBudgets)) touchTenant(account.group)
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
