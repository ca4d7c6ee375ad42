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
import { Array as Arr, Clock, Effect, Layer, Schema } from "effect"
import type { Account } from "../domain/Reservation.ts"
import { type Budgets, type Period, periods } from "../domain/Limits.ts"
import { accountOf, keysOfTenant } from "../gates/keys/accounts.ts"
import { Reconciler } from "../gates/limits/Reconciler.ts"
import { Meter, type Snapshot } from "../gates/meter/Meter.ts"
import { makeMonotonicMs, timeoutDetached } from "../infra/time.ts"
import { background, jittered, later } from "../observability/background.ts"
import { type BackgroundTask, Metrics } from "../observability/Metrics.ts"
import { settleExpired } from "./expiredHolds.ts"
import { daysOf, sumsByPeriod } from "./periods.ts"

export interface CounterReconcilerOptions {
  /** seconds between two comparisons; default 10 */
  readonly everyS?: number
  /** seconds between two comparisons of accounts that are compared first; default 1 */
  readonly soonEveryS?: number
}

/** Accounts compared in one round, and accounts that may wait for one. */
const batch = 1000
const capacity = 100_000
/** How long an account is compared first. */
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

/** Owners that wait to be compared, by name. One that is added while it is compared is compared again. */
class Waiting<A> {
  readonly #owners = new Map<string, A>()

  add(name: string, owner: A): void {
    if (this.#owners.size < capacity) this.#owners.set(name, owner)
  }

  has(name: string): boolean {
    return this.#owners.has(name)
  }

  delete(name: string): void {
    this.#owners.delete(name)
  }

  first(count: number): ReadonlyArray<readonly [string, A]> {
    return [...this.#owners].slice(0, count)
  }

  retain(isKept: (owner: A) => boolean): void {
    for (const [name, owner] of this.#owners) if (!isKept(owner)) this.#owners.delete(name)
  }
}

const make = Effect.fnUntraced(function* (options: CounterReconcilerOptions) {
  const [pg, meter, metrics] = [yield* PgClient.PgClient, yield* Meter, yield* Metrics]
  const nowMs = yield* makeMonotonicMs
  /** in the periods that are compared */
  const present = Clock.currentTimeMillis
  /** changed since their last successful comparison */
  const changed = new Waiting<Account>()
  /** compared first; `until` in monotonic ms */
  const suspects = new Waiting<Account & { readonly until: number }>()
  const tenants = new Waiting<undefined>()

  const touch = (account: Account): void => changed.add(nameOf(account), account)
  const suspect = (account: Account): void =>
    suspects.add(nameOf(account), { ...account, until: nowMs() + soonMs })
  const touchTenant = (tenant: string): void => tenants.add(tenant, undefined)
  /** After a failure the accounts are compared again. */
  const orTouch =
    (accounts: ReadonlyArray<Account>) =>
    <A, E, R>(work: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
      Effect.onError(work, () => Effect.sync(() => accounts.forEach(touch)))

  /** Returns by how many tokens the idle ones of the accounts differed. */
  const compareAccounts = Effect.fnUntraced(function* (accounts: ReadonlyArray<Account>) {
    const at = yield* present
    const surveys = yield* Effect.forEach(
      accounts,
      (account) => {
        // A change from here on touches it again.
        changed.delete(nameOf(account))
        return Effect.map(meter.snapshot(account, at), (survey) => ({ account, survey }))
      },
      { concurrency: 8 }
    ).pipe(orTouch(accounts))
    const left = surveys.filter(({ survey }) => survey.lapsed.length > 0)
    for (const { account, survey } of surveys) {
      if (survey.open > 0 || survey.lapsed.length > 0) touch(account)
      if (survey.lapsed.length > 0 && !suspects.has(nameOf(account))) suspect(account)
    }
    const expired = left.map(({ account, survey }) => ({ account, ids: survey.lapsed }))
    if (expired.length > 0) yield* settleExpired(pg, meter, expired, at).pipe(orTouch(accounts))
    // An account without counters has nothing to compare.
    const idle = surveys.filter(
      ({ survey: { lapsed, open, totals } }) =>
        open === 0 && lapsed.length === 0 && periods.some((period) => totals[period] !== undefined)
    )
    if (idle.length === 0) return 0
    const idleAccounts = idle.map(({ account }) => account)
    const ids = idleAccounts.map(({ key }) => key)
    const ledger = yield* readLedgerTotals(pg, ids, at).pipe(orTouch(idleAccounts))
    const byAccount = new Map(ledger.map((truth) => [truth.account, truth]))
    let drift = 0
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

  const compareChanged = Effect.suspend(() =>
    compareAccounts(changed.first(batch).map(([, account]) => account))
  )
  const compareSuspects = Effect.suspend(() => {
    const now = nowMs()
    // An account that stays busy is left to the slower comparison.
    suspects.retain(({ until }) => until >= now)
    return compareAccounts(suspects.first(batch).map(([, account]) => account))
  })
  const compareTenants = Effect.gen(function* () {
    const at = yield* present
    let drift = 0
    for (const [tenant] of tenants.first(tenantBatch)) {
      // A change from here on touches it again.
      tenants.delete(tenant)
      drift += yield* Effect.onError(compareTenant(tenant, at), () => Effect.sync(() => touchTenant(tenant)))
    }
    return drift
  })

  /** What each comparison found last. After a failure the difference is unknown; the figure before it would look valid. */
  const found = new Map<BackgroundTask, number>()
  yield* metrics.probe({
    name: "tollgate_counter_drift_tokens",
    help: "Tokens by which live counters at rest differed from the ledger when they were last compared",
    read: Effect.sync(() => found.values().reduce((sum, drift) => sum + drift, 0))
  })
  const compareEvery = <E>(task: BackgroundTask, seconds: number, comparison: Effect.Effect<number, E>) =>
    background(
      task,
      comparison.pipe(
        Effect.tap((drift) => Effect.sync(() => found.set(task, drift))),
        Effect.tapCause(() => Effect.sync(() => found.set(task, Number.NaN)))
      ),
      later(jittered(seconds * 1000))
    )
  const { everyS = 10, soonEveryS = 1 } = options
  yield* compareEvery("counter_comparison", everyS, compareChanged)
  yield* compareEvery("suspect_counter_comparison", soonEveryS, compareSuspects)
  yield* compareEvery("tenant_counter_comparison", everyS, compareTenants)

  return Reconciler.of({
    compare: ({ account, tenantBudgets }) =>
      Effect.sync(() => {
        touch(account)
        if (hasAny(tenantBudgets)) touchTenant(account.group)
      }),
    compareSoon: ({ group, key }) =>
      Effect.sync(() => (key === undefined ? touchTenant(group) : suspect({ group, key })))
  })
})

export const layerCounterReconciler = (
  options: CounterReconcilerOptions = {}
): Layer.Layer<Reconciler, never, Meter | PgClient.PgClient | Metrics> =>
  Layer.effect(Reconciler, make(options))
