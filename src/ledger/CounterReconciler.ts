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
import { Clock, Effect, Layer } from "effect"
import type { Account } from "../domain/Reservation.ts"
import { type Budgets, periods } from "../domain/Limits.ts"
import { Reconciler } from "../gates/limits/Reconciler.ts"
import { Meter } from "../gates/meter/Meter.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { background, jittered, later } from "../observability/background.ts"
import { type BackgroundTask, Metrics } from "../observability/Metrics.ts"
import { driftOf, idOf, mostAccounts, readAccounts, readLedgerTotals } from "./counterTruths.ts"
import { settleExpired } from "./expiredHolds.ts"

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

const hasAny = (budgets: Budgets = {}): boolean => periods.some((period) => budgets[period] !== undefined)

const nameOf = ({ group, key, user = "" }: Account): string => `${group}/${key}/${user}`

/** One that is added while it is compared is compared again. */
const add = <A>(waiting: Map<string, A>, name: string, owner: A): void => {
  if (waiting.size < capacity) waiting.set(name, owner)
}

const make = Effect.fnUntraced(function* (options: CounterReconcilerOptions) {
  const pg = yield* PgClient.PgClient
  const meter = yield* Meter
  const metrics = yield* Metrics
  const nowMs = yield* makeMonotonicMs
  /** in the periods that are compared */
  const present = Clock.currentTimeMillis
  /** changed since their last successful comparison */
  const changed = new Map<string, Account>()
  /** compared first; `until` in monotonic ms */
  const suspects = new Map<string, Account & { readonly until: number }>()
  const tenants = new Map<string, string>()

  const touch = (account: Account): void => add(changed, nameOf(account), account)
  const suspect = (account: Account): void =>
    add(suspects, nameOf(account), { ...account, until: nowMs() + soonMs })
  const touchTenant = (tenant: string): void => add(tenants, tenant, tenant)
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
    const truths = yield* readLedgerTotals(pg, idleAccounts, at).pipe(orTouch(idleAccounts))
    let drift = 0
    for (const { account, survey } of idle) {
      const truth = truths.get(idOf(account))
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
      const { key, user } = account
      yield* Effect.logWarning("counters repaired", {
        key_id: key,
        ...(user === undefined ? {} : { user_account: user }),
        tokens: difference
      })
    }
    return drift
  })

  /** Returns by how many tokens the counters of a tenant differed, if all its accounts are idle. */
  const compareTenant = Effect.fnUntraced(function* (tenant: string, at: number) {
    const accounts = yield* readAccounts(pg, tenant)
    if (accounts.length > mostAccounts) return 0
    const survey = yield* meter.snapshotGroup(tenant, accounts, at)
    if (!periods.some((period) => survey.totals[period] !== undefined)) return 0
    const group = { group: tenant }
    const truth = survey.open > 0 ? undefined : (yield* readLedgerTotals(pg, [group], at)).get(tenant)
    const isIdle = truth !== undefined && truth.open === 0
    const difference = isIdle ? driftOf(survey, truth) : 0
    // Compare it again, whether it is busy, is repaired now, or a request came in between.
    if (!isIdle || difference > 0) touchTenant(tenant)
    if (difference === 0 || truth === undefined) return 0
    if (!(yield* meter.repairGroup(tenant, accounts, at, survey.mark, truth))) return 0
    yield* Effect.logWarning("counters of a tenant repaired", { tenant_id: tenant, tokens: difference })
    return difference
  })

  const compareChanged = Effect.suspend(() => compareAccounts([...changed.values()].slice(0, batch)))
  const compareSuspects = Effect.suspend(() => {
    const now = nowMs()
    // An account that stays busy is left to the slower comparison.
    for (const [name, { until }] of suspects) if (until < now) suspects.delete(name)
    return compareAccounts([...suspects.values()].slice(0, batch))
  })
  const compareTenants = Effect.gen(function* () {
    const at = yield* present
    let drift = 0
    for (const tenant of [...tenants.keys()].slice(0, tenantBatch)) {
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
    compare: ({ account, tenantBudgets, user }) =>
      Effect.sync(() => {
        touch(account)
        if (user !== undefined) touch({ ...account, user: user.id })
        if (hasAny(tenantBudgets)) touchTenant(account.group)
      }),
    compareSoon: ({ group, key, user }) =>
      Effect.sync(() => {
        if (key === undefined) return touchTenant(group)
        suspect({ group, key })
        if (user !== undefined) suspect({ group, key, user })
      })
  })
})

export const layerCounterReconciler = (
  options: CounterReconcilerOptions = {}
): Layer.Layer<Reconciler, never, Meter | PgClient.PgClient | Metrics> =>
  Layer.effect(Reconciler, make(options))
