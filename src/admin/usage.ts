/** What a tenant used, from the ledger. */
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { Calendar } from "../domain/Calendar.ts"
import type { Period } from "../domain/Limits.ts"
import { oneRow } from "../infra/rows.ts"
import { daysOf, inPeriod } from "../ledger/periods.ts"
import { readNow } from "./period.ts"
import { requireTenant, UsageTotals } from "./rows.ts"

export const readUsage = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  tenant: string,
  period: Period,
  { dayAt }: Calendar
) {
  yield* requireTenant(sql, tenant)
  const day = dayAt(yield* readNow(sql))
  return yield* oneRow(UsageTotals.fields)(sql`
        WITH at AS MATERIALIZED (${daysOf(sql, day)})
        SELECT coalesce(sum(l.requests), 0)::float8 AS requests,
          coalesce(sum(l.tokens_in), 0)::float8 AS "tokensIn", coalesce(sum(l.tokens_out), 0)::float8 AS "tokensOut",
          (SELECT coalesce(sum(u.tokens_cached), 0)::float8
            FROM at CROSS JOIN usage_daily u JOIN tenants t ON t.id = u.tenant_id
            WHERE t.name = ${tenant} AND ${inPeriod(sql, period, "u.day")}) AS "tokensCached"
        FROM at CROSS JOIN ledger l JOIN tenants t ON t.id = l.tenant_id
        WHERE t.name = ${tenant} AND ${inPeriod(sql, period, "l.day")}`)
})
