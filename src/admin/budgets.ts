/** Token budgets of a key: their amounts, and the tokens that the ledger counts. */
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { daysOf, sumsByPeriod } from "../ledger/periods.ts"
import { UnknownKey } from "./Errors.ts"
import type { BudgetChange, BudgetState } from "./Registry.ts"
import { budgetRows } from "./rows.ts"
import * as Values from "./Values.ts"

/** A field that is absent in a change does not change. */
export const orKeep = <A>(value: A | undefined): { readonly given: boolean; readonly value: A | null } =>
  value === undefined ? { given: false, value: null } : { given: true, value }

const budgetOrNull = (field: string, given: number | null | undefined) =>
  given === undefined || given === null ? Effect.succeed(given) : Values.validate(field, Values.budget, given)

export const readBudgets = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, prefix: string) {
  const rows = yield* sql`
    WITH at AS MATERIALIZED (${daysOf(sql, sql`now()`)})
    SELECT k.budget_daily::float8 AS budget_daily, k.budget_monthly::float8 AS budget_monthly,
      k.budget_total::float8 AS budget_total,
      ${sumsByPeriod(sql, { day: "l.day", tokens: "l.tokens_in + l.tokens_out" })}
    FROM at CROSS JOIN api_keys k LEFT JOIN ledger l ON l.key_id = k.id WHERE k.prefix = ${prefix} GROUP BY k.id`
  const [row] = yield* budgetRows(rows)
  if (row === undefined) return yield* new UnknownKey({ prefix })
  const states: ReadonlyArray<BudgetState> = [
    { period: "day", budget: row.budget_daily, spent: row.day },
    { period: "month", budget: row.budget_monthly, spent: row.month },
    { period: "total", budget: row.budget_total, spent: row.total }
  ]
  return states
})

export const writeBudgets = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  given: string,
  wish: BudgetChange
) {
  const prefix = yield* Values.validate("prefix", Values.prefix, given)
  const daily = orKeep(yield* budgetOrNull("daily", wish.day))
  const monthly = orKeep(yield* budgetOrNull("monthly", wish.month))
  const total = orKeep(yield* budgetOrNull("total", wish.total))
  return yield* sql.withTransaction(
    Effect.andThen(
      sql`UPDATE api_keys SET
        budget_daily = CASE WHEN ${daily.given}::boolean THEN ${daily.value}::float8::bigint ELSE budget_daily END,
        budget_monthly = CASE WHEN ${monthly.given}::boolean THEN ${monthly.value}::float8::bigint ELSE budget_monthly END,
        budget_total = CASE WHEN ${total.given}::boolean THEN ${total.value}::float8::bigint ELSE budget_total END
        WHERE prefix = ${prefix}`,
      readBudgets(sql, prefix)
    )
  )
})
