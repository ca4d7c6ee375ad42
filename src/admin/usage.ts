/** What a tenant used, from the ledger, or one end user, from the audit: the ledger has no names. */
import { Effect, Record } from "effect"
import type { SqlClient } from "effect/sql"
import { type Calendar, dateNumbered } from "../domain/Calendar.ts"
import type { Period } from "../domain/Limits.ts"
import { oneRow } from "../infra/rows.ts"
import { daysOf, inPeriod } from "../ledger/periods.ts"
import { readNow, readPeriod } from "./period.ts"
import { readReport } from "./records/report.ts"
import { largeRead, type Owner, requireTenant, UsageTotals } from "./rows.ts"

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

/** Of one end user of a key or a tenant. It may have several stored names. */
export const readUserUsage = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  owner: Owner,
  span: Period,
  user: string,
  calendar: Calendar
) {
  const { dates } = calendar.dayAt(yield* readNow(sql))
  // Ids are looked for from two days before it, in any zone, and have no time before 1970.
  const day = span === "total" ? dateNumbered(3) : dates[span].from
  const period = yield* readPeriod(sql, { since: { day } }, calendar)
  const { rows } = yield* largeRead(sql)(120, readReport(sql, { ...owner, by: "user", user, period, top: 10 }))
  return Record.map(UsageTotals.fields, (_, of) => rows.reduce((sum, row) => sum + row[of], 0))
})
