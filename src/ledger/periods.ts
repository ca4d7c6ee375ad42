/**
 * Budget periods in SQL: the only place that says which days of the ledger belong to a period. `domain/Calendar.ts` says
 * the same for the counters.
 *
 * A statement that uses these has `WITH at AS MATERIALIZED (${daysOf(…)})` and joins `at`.
 */
import type { SqlClient, Statement } from "effect/sql"
import { type Period, periods } from "../domain/Limits.ts"

/** One row: the UTC day that holds `instant`, the first day of its month, and the first day of the next month. */
export const daysOf = (sql: SqlClient.SqlClient, instant: Statement.Fragment): Statement.Fragment =>
  sql`SELECT day, date_trunc('month', day)::date AS month, (date_trunc('month', day) + interval '1 month')::date AS next
    FROM (SELECT (${instant} AT TIME ZONE 'UTC')::date AS day) today`

/** Whether the date in column `day` belongs to the period that is under way in `at`. */
export const inPeriod = (sql: SqlClient.SqlClient, period: Period, day: string): Statement.Fragment =>
  sql.literal(
    { day: `${day} = at.day`, month: `${day} >= at.month AND ${day} < at.next`, total: "true" }[period]
  )

/** Columns `day`, `month` and `total`: sums of `tokens`, an expression, over the rows of each period. */
export const sumsByPeriod = (
  sql: SqlClient.SqlClient,
  { day, tokens }: { readonly day: string; readonly tokens: string }
): Statement.Fragment =>
  sql.csv(
    periods.map(
      (period) =>
        sql`coalesce(sum(${sql.literal(tokens)}) FILTER (WHERE ${inPeriod(sql, period, day)}), 0)::float8 AS ${sql.literal(period)}`
    )
  )
