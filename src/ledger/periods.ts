/**
 * Budget periods in SQL: which days of the ledger belong to a period. The dates come from the calendar (`domain/Calendar.ts`), so the
 * database knows of no time zone.
 *
 * A statement that uses these has `WITH at AS MATERIALIZED (${daysOf(…)})` and joins `at`.
 */
import type { SqlClient, Statement } from "effect/sql"
import type { Day } from "../domain/Calendar.ts"
import { type Period, periods } from "../domain/Limits.ts"

/** One row: the first day of each period, and the first day after it. */
export const daysOf = (sql: SqlClient.SqlClient, { dates: { day, month, week } }: Day): Statement.Fragment =>
  sql`SELECT d[1] AS day, d[2] AS day_to, d[3] AS week, d[4] AS week_to, d[5] AS month, d[6] AS month_to
    FROM (SELECT string_to_array(${[day, week, month].flatMap(({ from, to }) => [from, to]).join()}, ',')::date[] AS d) dates`

/** Whether the date in column `day` belongs to the period that is under way in `at`. */
export const inPeriod = (sql: SqlClient.SqlClient, period: Period, day: string): Statement.Fragment =>
  sql.literal(period === "total" ? "true" : `${day} >= at.${period} AND ${day} < at.${period}_to`)

/** The first day that counts in a period and in those before it, so that the sum of a day does not read all days. */
export const since = {
  day: "at.day",
  week: "at.week",
  month: "least(at.week, at.month)",
  total: "'-infinity'::date"
} as const satisfies { readonly [P in Period]: string }

/** A column for each period: sums of `tokens`, an expression, over its rows. */
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
