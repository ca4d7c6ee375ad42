/**
 * Compares live counters with the ledger and repairs differences. They come from a process that died between closing an
 * intent and settling it, from a lost settlement, or from a hold that was counted twice to be safe.
 *
 * A busy account is compared later. The counters of a tenant (a group of accounts) are compared when all its accounts are idle at
 * once. Until then they may be too high, for the reasons above, and never too low.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Clock, Effect, Layer } from "effect"
import { TimeZone } from "../domain/Calendar.ts"
import type { CounterOwner } from "../domain/Reservation.ts"
import { type Budgets, periods } from "../domain/Limits.ts"
import { Reconciler } from "../gates/limits/Reconciler.ts"
import { Meter } from "../gates/meter/Meter.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { background, jittered, later } from "../observability/background.ts"
import { type BackgroundTask, Metrics } from "../observability/Metrics.ts"
import { type Look, makeComparison, nameOf } from "./comparison.ts"

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

const sumOf = (drifts: ReadonlyArray<number>): number => drifts.reduce((sum, drift) => sum + drift, 0)

const logRepair = ({ group, key, model, user }: CounterOwner, tokens: number) =>
  key === undefined
    ? Effect.logWarning("counters of a tenant repaired", { tenant_id: group, tokens })
    : Effect.logWarning("counters repaired", {
        key_id: key,
        ...(user === undefined ? {} : { user_account: user }),
        ...(model === undefined ? {} : { model }),
        tokens
      })

const make = Effect.fnUntraced(function* (options: CounterReconcilerOptions) {
  const pg = yield* PgClient.PgClient
  const comparison = makeComparison(pg, yield* Meter, yield* TimeZone)
  const metrics = yield* Metrics
  const nowMs = yield* makeMonotonicMs
  /** changed since their last successful comparison */
  const changed = new Map<string, CounterOwner>()
  /** compared first; `until` in monotonic ms */
  const suspects = new Map<string, { readonly owner: CounterOwner; readonly until: number }>()

  /** One that is added while it is compared is compared again. */
  const touch = (owner: CounterOwner): void => {
    if (changed.size < capacity) changed.set(nameOf(owner), owner)
  }
  const suspect = (owner: CounterOwner): void => {
    if (suspects.size < capacity) suspects.set(nameOf(owner), { owner, until: nowMs() + soonMs })
  }

  /** Mends what a look found. Returns by how many tokens the counters differed. */
  const mend = Effect.fnUntraced(function* (found: Look, at: number) {
    const { kind, owner, survey } = found
    if (survey.lapsed.length > 0 && !suspects.has(nameOf(owner))) suspect(owner)
    // Compare it once more, whether it is busy, is mended now, or a request came in between.
    if (kind === "busy" || kind === "hold" || kind === "counter") touch(owner)
    if (kind === "equal") suspects.delete(nameOf(owner))
    if (!(yield* comparison.mend(found, at)) || kind !== "counter") return 0
    yield* logRepair(owner, found.by)
    return found.by
  })

  /** Returns by how many tokens those of the owners that are idle differed. After a failure they are compared again. */
  const compare = Effect.fnUntraced(
    function* (owners: ReadonlyArray<CounterOwner>) {
      const at = yield* Clock.currentTimeMillis
      // A change from here on touches it again.
      for (const owner of owners) changed.delete(nameOf(owner))
      const found = yield* comparison.look(owners, at)
      const drifts = yield* Effect.forEach(found, (one) => mend(one, at), { concurrency: 8 })
      return sumOf(drifts)
    },
    (work, owners) => Effect.onError(work, () => Effect.sync(() => owners.forEach(touch)))
  )

  const compareChanged = Effect.suspend(() =>
    compare([...changed.values()].filter(({ key }) => key !== undefined).slice(0, batch))
  )
  const compareSuspects = Effect.suspend(() => {
    const now = nowMs()
    // An account that stays busy is left to the slower comparison.
    for (const [name, { until }] of suspects) if (until < now) suspects.delete(name)
    return compare([...suspects.values()].map(({ owner }) => owner).slice(0, batch))
  })
  /** One after the other: a tenant that cannot be read holds up nobody for long. */
  const compareTenants = Effect.suspend(() => {
    const tenants = [...changed.values()].filter(({ key }) => key === undefined).slice(0, tenantBatch)
    return Effect.map(
      Effect.forEach(tenants, (tenant) => compare([tenant])),
      sumOf
    )
  })

  /** What each comparison found last. After a failure the difference is unknown; the figure before it would look valid. */
  const found = new Map<BackgroundTask, number>()
  yield* metrics.probe({
    name: "tollgate_counter_drift_tokens",
    help: "Tokens by which live counters at rest differed from the ledger when they were last compared",
    read: Effect.sync(() => sumOf([...found.values()]))
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
    compare: (claims) => {
      touch(claims.account)
      if (claims.user !== undefined) touch({ ...claims.account, user: claims.user.id })
      if (claims.model !== undefined) touch({ ...claims.account, model: claims.model.name })
      if (hasAny(claims.tenantBudgets)) touch({ group: claims.account.group })
    },
    compareSoon: ({ group, key, model, user }) =>
      Effect.sync(() => {
        // What an account has wrong, its tenant has too, and perhaps no request of it comes here again.
        touch({ group })
        if (key === undefined) return
        suspect({ group, key })
        if (user !== undefined) suspect({ group, key, user })
        if (model !== undefined) suspect({ group, key, model })
      })
  })
})

export const layerCounterReconciler = (
  options: CounterReconcilerOptions = {}
): Layer.Layer<Reconciler, never, Meter | PgClient.PgClient | Metrics> =>
  Layer.effect(Reconciler, make(options))
