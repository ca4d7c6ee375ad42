/** What the budgets of tenants have left, by the ledger, for alerts. Every replica shows the same figures. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Clock, Effect, Layer, Schema, Struct } from "effect"
import { TimeZone } from "../domain/Calendar.ts"
import { extraOf, periods } from "../domain/Limits.ts"
import { extraBudgetOf, StoredExtra } from "../domain/storedRules.ts"
import { remembered, timeoutDetached } from "../infra/time.ts"
import { Metrics } from "../observability/Metrics.ts"
import { daysOf, sumsByPeriod } from "./periods.ts"

/** A total budget reads all days of a tenant's keys. */
const keptMs = 10_000

const Tokens = Schema.Struct({
  day: Schema.Finite,
  week: Schema.Finite,
  month: Schema.Finite,
  total: Schema.Finite
})
const Budgets = Tokens.mapFields(Struct.map(Schema.NullOr))
const decodeRows = Schema.decodeUnknownEffect(
  Schema.Array(
    Schema.Struct({ tenant: Schema.String, extra: StoredExtra, budgets: Budgets, ...Tokens.fields })
  )
)

const make = Effect.gen(function* () {
  const metrics = yield* Metrics
  const pg = yield* PgClient.PgClient
  const { dayAt } = yield* TimeZone
  const readAt = (now: number) =>
    timeoutDetached("1 second")(pg`
    WITH at AS MATERIALIZED (${daysOf(pg, dayAt(now))})
    SELECT t.name AS tenant, extra_budget AS extra,
      jsonb_build_object('day', budget_daily, 'week', budget_weekly, 'month', budget_monthly, 'total', budget_total) AS budgets,
      ${sumsByPeriod(pg, { day: "l.day", tokens: "l.tokens_in + l.tokens_out" })}
    FROM at CROSS JOIN tenants t LEFT JOIN ledger l ON l.tenant_id = t.id
    WHERE num_nonnulls(budget_daily, budget_weekly, budget_monthly, budget_total) > 0
    GROUP BY t.id`).pipe(
      Effect.flatMap(decodeRows),
      Effect.map((rows) =>
        rows.flatMap(({ budgets, extra, tenant, ...spent }) =>
          periods.flatMap((period) => {
            if (budgets[period] === null) return []
            const more = extraOf(extraBudgetOf(extra), now, { spent: spent[period], total: spent.total })
            const budget = budgets[period] + more
            return [{ labels: { tenant, period }, budget, left: Math.max(0, budget - spent[period]) }]
          })
        )
      )
    )
  const budgets = yield* remembered(Effect.flatMap(Clock.currentTimeMillis, readAt), keptMs)
  const gauge = (shown: { readonly name: string; readonly help: string }, figure: "budget" | "left") =>
    metrics.probe({
      ...shown,
      labels: ["tenant", "period"],
      read: Effect.map(budgets, (rows) => rows.map((row) => ({ labels: row.labels, value: row[figure] })))
    })
  yield* gauge({ name: "tollgate_tenant_budget_tokens", help: "Budgets of tenants, by period" }, "budget")
  yield* gauge(
    {
      name: "tollgate_tenant_budget_left_tokens",
      help: "What is left of the budgets of tenants, by period"
    },
    "left"
  )
})

export const layerBudgetGauges: Layer.Layer<never, never, Metrics | PgClient.PgClient> =
  Layer.effectDiscard(make)
