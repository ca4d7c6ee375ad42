/**
 * Warns before a budget is spent: when the ledger says that 80 or 95 % of a budget are used, one log event is written and one
 * counter goes up, once for each period and budget over all replicas. A row of `budget_warnings` decides which replica does it.
 *
 * A settled request shows what is left of its budgets, so it costs nothing to see that a threshold may be reached. What is held
 * counts there, and may be given back. So the ledger is asked in the background, and again while requests of the budget end.
 *
 * A budget that is changed is another budget: its thresholds are announced again. When a process dies between the row and
 * the log event, the event is lost.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Context, Effect, Layer, Schema } from "effect"
import { counterNamesAt } from "../domain/Calendar.ts"
import { type BudgetScope, budgetThresholds, type Headroom, type Period, periods } from "../domain/Limits.ts"
import type { Reservation } from "../domain/Reservation.ts"
import { keysOfAccount } from "../gates/keys/accounts.ts"
import { SuspectAccounts } from "../gates/limits/SuspectAccounts.ts"
import { Meter } from "../gates/meter/Meter.ts"
import { makeMonotonicMs, timeoutDetached } from "../infra/time.ts"
import { background, later, spaced } from "../observability/background.ts"
import { Metrics } from "../observability/Metrics.ts"
import { daysOf, inPeriod } from "./periods.ts"

/** A threshold that the counters show as reached, and the ledger perhaps not yet. */
interface Candidate {
  readonly scope: BudgetScope
  readonly group: string
  readonly key: string
  readonly period: Period
  /** the period, as the name of its counter */
  readonly counter: string
  readonly budget: number
  readonly threshold: number
  /** epoch ms in the period */
  readonly instant: number
  /** until when the ledger is asked, in monotonic ms */
  readonly until: number
}

const everyMs = 1000
/** The ledger has a settled request within a few seconds. */
const patienceMs = 30_000
/** Candidates that are remembered, waiting and done, and those that one round asks for. */
const capacity = 10_000
const batch = 50

const Checked = Schema.Tuple([
  Schema.Struct({
    spent: Schema.Finite,
    first: Schema.Boolean,
    tenant: Schema.NullOr(Schema.String),
    prefix: Schema.NullOr(Schema.String)
  })
])
const decodeChecked = Schema.decodeUnknownEffect(Checked)
const decodeNames = Schema.decodeUnknownEffect(Schema.Array(Schema.Struct({ name: Schema.String })))

const leastOf = ({ budget, threshold }: Candidate): number => Math.ceil((budget * threshold) / 100)

/** Asks the ledger, and writes the row if the threshold is reached and nobody has written it. */
const check = (pg: PgClient.PgClient, candidate: Candidate) => {
  const { budget, counter, group, instant, key, period, scope, threshold } = candidate
  const owner = scope === "key" ? key : group
  const ofOwner =
    scope === "key" ? pg`l.key_id IN (${keysOfAccount(pg, key)})` : pg`l.tenant_id = ${group}::text::uuid`
  return timeoutDetached("3 seconds")(pg`
    WITH at AS MATERIALIZED (${daysOf(pg, pg`${new Date(instant).toISOString()}::text::timestamptz`)}),
    sums AS (
      SELECT coalesce(sum(l.tokens_in + l.tokens_out), 0)::float8 AS spent
      FROM at JOIN ledger l ON ${inPeriod(pg, period, "l.day")} WHERE ${ofOwner}
    ), reached AS (
      INSERT INTO budget_warnings (scope, owner, period, counter, budget, threshold, spent)
      SELECT ${scope}, ${owner}::text::uuid, ${period}, ${counter}, ${budget}::float8::bigint, ${threshold}::int,
        spent::bigint
      FROM sums WHERE spent >= ${leastOf(candidate)}::float8
      ON CONFLICT DO NOTHING RETURNING 1
    ), old AS (
      DELETE FROM budget_warnings WHERE owner = ${owner}::text::uuid AND scope = ${scope} AND period = ${period}
        AND counter < ${counter}
    )
    SELECT spent, EXISTS (SELECT FROM reached) AS first,
      (SELECT name FROM tenants WHERE id = ${group}::text::uuid) AS tenant,
      (SELECT prefix FROM api_keys WHERE id = ${key}::text::uuid) AS prefix
    FROM sums`).pipe(
    Effect.flatMap(decodeChecked),
    Effect.map(([checked]) => checked)
  )
}

const make = Effect.gen(function* () {
  const [meter, metrics, pg, suspects] = [
    yield* Meter,
    yield* Metrics,
    yield* PgClient.PgClient,
    yield* SuspectAccounts
  ]
  const nowMs = yield* makeMonotonicMs
  const waiting = new Map<string, Candidate>()
  /** thresholds that are announced, here or by another replica */
  const announced = new Set<string>()
  /** tenants with a budget: whether their counters were begun at 0 */
  const tenants = new Map<string, boolean>()

  const note = ({ admittedAt, claims }: Reservation, headroom: Headroom): void => {
    const { group, key } = claims.account
    for (const scope of ["key", "tenant"] as const) {
      const budgets = scope === "key" ? headroom.budgets : headroom.tenantBudgets
      if (budgets === undefined) continue
      for (const period of periods) {
        const left = budgets[period]
        if (left === undefined) continue
        if (!tenants.has(group) && tenants.size < capacity) tenants.set(group, false)
        for (const threshold of budgetThresholds) {
          const used = left.limit - left.remaining
          if (left.limit === 0 || used * 100 < left.limit * threshold) continue
          const counter = counterNamesAt(admittedAt)[period]
          const name = [scope, scope === "key" ? key : group, period, counter, left.limit, threshold].join(
            " "
          )
          if (announced.has(name) || waiting.size >= capacity) continue
          waiting.set(name, {
            scope,
            group,
            key,
            period,
            counter,
            budget: left.limit,
            threshold,
            instant: admittedAt,
            until: nowMs() + patienceMs
          })
        }
      }
    }
  }

  /** A counter that begins at 1 has not increased, as Prometheus sees it. */
  const beginCounters = Effect.gen(function* () {
    for (const [tenant, begun] of tenants) {
      if (begun) continue
      const rows = yield* timeoutDetached("3 seconds")(
        pg`SELECT name FROM tenants WHERE id = ${tenant}::text::uuid`
      )
      for (const { name } of yield* decodeNames(rows)) {
        for (const threshold of budgetThresholds) yield* metrics.budgetThreshold(name, threshold, 0)
      }
      tenants.set(tenant, true)
    }
  })

  const announce = Effect.fnUntraced(function* (candidate: Candidate) {
    const { first, prefix, spent, tenant } = yield* check(pg, candidate)
    if (spent < leastOf(candidate)) return false
    if (!first) return true
    yield* metrics.budgetThreshold(tenant ?? "none", candidate.threshold, 1)
    yield* Effect.logWarning("budget threshold reached", {
      tenant,
      ...(candidate.scope === "key" ? { key_prefix: prefix } : {}),
      scope: candidate.scope,
      period: candidate.period,
      threshold: candidate.threshold,
      spent,
      budget: candidate.budget
    })
    return true
  })

  const round = Effect.gen(function* () {
    yield* beginCounters
    for (const [name, candidate] of [...waiting].slice(0, batch)) {
      const isDone = yield* announce(candidate)
      waiting.delete(name)
      if (isDone) {
        if (announced.size >= capacity) announced.clear()
        announced.add(name)
      } else if (candidate.until > nowMs() && !waiting.has(name)) waiting.set(name, candidate)
    }
  })
  yield* background("budget_thresholds", round, later(spaced(everyMs)))

  const watched = Meter.of({
    ...meter,
    settle: (reservation, used, options) =>
      Effect.map(meter.settle(reservation, used, options), (headroom) => {
        note(reservation, headroom)
        return headroom
      })
  })
  return Context.add(Context.make(Meter, watched), SuspectAccounts, suspects)
})

/** Provides the same Meter, and watches what is left of budgets while the layer lives. */
export const layerBudgetThresholds: Layer.Layer<
  Meter | SuspectAccounts,
  never,
  Meter | SuspectAccounts | PgClient.PgClient | Metrics
> = Layer.effectContext(make)
