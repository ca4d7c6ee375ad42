/** Token budgets of keys and tenants: their amounts, and the tokens that the ledger counts. */
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { budgetUseOf, type Period } from "../domain/Limits.ts"
import { accountOf } from "../gates/keys/accounts.ts"
import { daysOf, sumsByPeriod } from "../ledger/periods.ts"
import { UnknownKey, UnknownTenant } from "./Errors.ts"
import type { BudgetChange, BudgetState } from "./Registry.ts"
import { budgetRows } from "./rows.ts"
import * as Values from "./Values.ts"

/** A field that is absent in a change does not change. */
export const orKeep = <A>(value: A | undefined): { readonly given: boolean; readonly value: A | null } =>
  value === undefined ? { given: false, value: null } : { given: true, value }

const budgetOrNull = (field: string, given: number | null | undefined) =>
  given === undefined || given === null ? Effect.succeed(given) : Values.validate(field, Values.budget, given)

const decodeStates = Effect.fnUntraced(function* (rows: ReadonlyArray<unknown>) {
  const [row] = yield* budgetRows(rows)
  if (row === undefined) return undefined
  const stateOf = (period: Period, budget: number | null): BudgetState => ({
    period,
    budget,
    spent: row[period],
    state: budget === null ? null : budgetUseOf(budget, row[period])
  })
  const states: ReadonlyArray<BudgetState> = [
    stateOf("day", row.budget_daily),
    stateOf("month", row.budget_monthly),
    stateOf("total", row.budget_total)
  ]
  return states
})

const columns = (sql: SqlClient.SqlClient, owner: "k" | "t") => sql`
  ${sql.literal(owner)}.budget_daily::float8 AS budget_daily, ${sql.literal(owner)}.budget_monthly::float8 AS budget_monthly,
  ${sql.literal(owner)}.budget_total::float8 AS budget_total,
  ${sumsByPeriod(sql, { day: "l.day", tokens: "l.tokens_in + l.tokens_out" })}`

/** What was spent is what all keys of the account have spent. */
export const readBudgets = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, prefix: string) {
  const states = yield* Effect.flatMap(
    sql`
      WITH at AS MATERIALIZED (${daysOf(sql, sql`now()`)}),
      k AS (SELECT *, ${accountOf(sql, "api_keys")} AS account FROM api_keys WHERE prefix = ${prefix}),
      keys AS (SELECT account AS id FROM k UNION SELECT o.id FROM k JOIN api_keys o ON o.budget_account = k.account)
      SELECT ${columns(sql, "k")}
      FROM at CROSS JOIN k LEFT JOIN ledger l ON l.key_id IN (SELECT id FROM keys)
      GROUP BY k.budget_daily, k.budget_monthly, k.budget_total`,
    decodeStates
  )
  return states ?? (yield* new UnknownKey({ prefix }))
})

export const readTenantBudgets = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, tenant: string) {
  const states = yield* Effect.flatMap(
    sql`
      WITH at AS MATERIALIZED (${daysOf(sql, sql`now()`)})
      SELECT ${columns(sql, "t")}
      FROM at CROSS JOIN tenants t LEFT JOIN ledger l ON l.tenant_id = t.id WHERE t.name = ${tenant} GROUP BY t.id`,
    decodeStates
  )
  return states ?? (yield* new UnknownTenant({ tenant }))
})

/** The columns to set. An absent period does not change, null removes its budget. */
const assignments = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, wish: BudgetChange) {
  const daily = orKeep(yield* budgetOrNull("daily", wish.day))
  const monthly = orKeep(yield* budgetOrNull("monthly", wish.month))
  const total = orKeep(yield* budgetOrNull("total", wish.total))
  return sql`
    budget_daily = CASE WHEN ${daily.given}::boolean THEN ${daily.value}::float8::bigint ELSE budget_daily END,
    budget_monthly = CASE WHEN ${monthly.given}::boolean THEN ${monthly.value}::float8::bigint ELSE budget_monthly END,
    budget_total = CASE WHEN ${total.given}::boolean THEN ${total.value}::float8::bigint ELSE budget_total END`
})

/**
 * Locks a key and the first key of its account until the end of the transaction, so that no key joins the account meanwhile.
 * Returns whether the key exists.
 */
export const lockAccount = (sql: SqlClient.SqlClient, prefix: string) =>
  Effect.map(
    sql`
      SELECT 1 FROM api_keys
      WHERE prefix = ${prefix} OR id = (SELECT k.budget_account FROM api_keys k WHERE k.prefix = ${prefix})
      ORDER BY created_at, id FOR UPDATE`,
    (rows) => rows.length > 0
  )

/** Keys of one account have one budget, so all of them are set. */
export const writeBudgets = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  given: string,
  wish: BudgetChange
) {
  const prefix = yield* Values.validate("prefix", Values.prefix, given)
  const set = yield* assignments(sql, wish)
  return yield* sql.withTransaction(
    Effect.gen(function* () {
      yield* lockAccount(sql, prefix)
      yield* sql`
        UPDATE api_keys SET ${set}
        WHERE ${accountOf(sql, "api_keys")} = (SELECT ${accountOf(sql, "k")} FROM api_keys k WHERE k.prefix = ${prefix})`
      return yield* readBudgets(sql, prefix)
    })
  )
})

export const writeTenantBudgets = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  tenant: string,
  wish: BudgetChange
) {
  const set = yield* assignments(sql, wish)
  return yield* sql.withTransaction(
    Effect.andThen(sql`UPDATE tenants SET ${set} WHERE name = ${tenant}`, readTenantBudgets(sql, tenant))
  )
})
