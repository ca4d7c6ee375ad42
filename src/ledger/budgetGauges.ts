/** What the budgets of tenants have left, by the ledger, for alerts. Every replica shows the same figures. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Clock, Effect, Layer, Schema } from "effect"
import { TimeZone } from "../domain/Calendar.ts"
import { remembered, timeoutDetached } from "../infra/time.ts"
import { Metrics } from "../observability/Metrics.ts"
import { ownBudgets, withBudgets } from "./budgets.ts"

/** A total budget reads all days of a tenant's keys. */
const keptMs = 10_000

const labels = Schema.Struct({ tenant: Schema.String, period: Schema.String })
const decodeRows = Schema.decodeUnknownEffect(
  Schema.Array(Schema.Struct({ labels, budget: Schema.Finite, remaining: Schema.Finite }))
)

const make = Effect.gen(function* () {
  const metrics = yield* Metrics
  const pg = yield* PgClient.PgClient
  const { dayAt } = yield* TimeZone
  const tenants = pg`
    SELECT t.name, t.id AS tenant, NULL::uuid[] AS keys, NULL::uuid AS user_account, NULL::text AS model, ${ownBudgets(pg)} FROM tenants t`
  const readAt = (now: number) =>
    timeoutDetached("1 second")(pg`
      ${withBudgets(pg, dayAt(now), tenants)}
      SELECT jsonb_build_object('tenant', name, 'period', period) AS labels, budget, greatest(0, budget - used) AS remaining
      FROM budgets`).pipe(Effect.flatMap(decodeRows))
  const budgets = yield* remembered(Effect.flatMap(Clock.currentTimeMillis, readAt), keptMs)
  const gauge = (name: string, help: string, figure: "budget" | "remaining") =>
    metrics.probe({
      name,
      help,
      labels: ["tenant", "period"],
      read: Effect.map(budgets, (rows) => rows.map((row) => ({ labels: row.labels, value: row[figure] })))
    })
  yield* gauge("tollgate_tenant_budget_tokens", "Budgets of tenants, by period", "budget")
  yield* gauge(
    "tollgate_tenant_budget_left_tokens",
    "What is left of the budgets of tenants, by period",
    "remaining"
  )
})

export const layerBudgetGauges: Layer.Layer<never, never, Metrics | PgClient.PgClient> =
  Layer.effectDiscard(make)
