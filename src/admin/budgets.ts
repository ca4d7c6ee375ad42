/** Token budgets of keys and tenants: their amounts, and the tokens that the ledger counts. */
import { Effect, Schema, Struct } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { Calendar } from "../domain/Calendar.ts"
import { budgetUseOf, extraOf, periods } from "../domain/Limits.ts"
import type { CounterOwner } from "../domain/Reservation.ts"
import { KeyAttributes } from "../domain/attributes.ts"
import { extraBudgetOf } from "../domain/storedRules.ts"
import { userAccountId } from "../domain/EndUser.ts"
import { accountOf } from "../gates/keys/accounts.ts"
import { makeRowReader, selected } from "../infra/rows.ts"
import { idOf, readTotals, type Totals } from "../ledger/totals.ts"
import { UnknownKey, UnknownTenant } from "./Errors.ts"
import { budgetFields, budgetOf, type BudgetState, keyNamed, tenantNamed } from "./rows.ts"
import { readUsersOwner, storedUser } from "./users.ts"

const budgets = Struct.pick(KeyAttributes.fields, budgetFields)

/** A row with budgets. `id`: of their owner; `at`: now, by the clock of the database */
const Row = Schema.Struct({ ...budgets, id: Schema.String, at: Schema.Finite })
export const now = "(extract(epoch FROM now()) * 1000)::float8 AS at"

/** `at`: now */
type Amounts = Pick<KeyAttributes, (typeof budgetFields)[number]> & { readonly at: number }

/** The states of budgets. `totals`: what the ledger counts for their owner; undefined: nothing */
export const statesOf = (amounts: Amounts, totals: Totals | undefined): ReadonlyArray<BudgetState> =>
  periods.map((period) => {
    const budget = amounts[budgetOf[period]]
    const [spent, total] = [totals?.[period] ?? 0, totals?.total ?? 0]
    const extra =
      budget === null ? 0 : extraOf(extraBudgetOf(amounts.extraBudget), amounts.at, { spent, total })
    return {
      period,
      budget,
      extra,
      spent,
      state: budget === null ? null : budgetUseOf(budget + extra, spent)
    }
  })

/** The states of the budgets of one row, by what the ledger counts for `ownerOf` it. */
const read = Effect.fnUntraced(function* <E>(
  sql: SqlClient.SqlClient,
  query: Statement.Fragment,
  ownerOf: (row: typeof Row.Type) => CounterOwner,
  name: string,
  unknown: E,
  { dayAt }: Calendar
) {
  const row = yield* makeRowReader(() => name, Row).first(sql`SELECT ${sql.literal(now)}, ${query}`)
  if (row === undefined) return yield* Effect.fail(unknown)
  const totals = yield* readTotals(sql, [ownerOf(row)], dayAt(row.at))
  return statesOf(row, totals.get(idOf(ownerOf(row))))
})

const ofKey = (sql: SqlClient.SqlClient, prefix: string) =>
  sql`${accountOf(sql, "k")}::text AS id FROM api_keys k WHERE prefix = ${prefix}`

/** What was spent is what all keys of the account have spent. */
export const readBudgets = (sql: SqlClient.SqlClient, prefix: string, calendar: Calendar) =>
  read(
    sql,
    sql`${selected(sql, "k", budgets)}, ${ofKey(sql, prefix)}`,
    ({ id }) => ({ group: "", key: id }),
    keyNamed(prefix),
    new UnknownKey({ prefix }),
    calendar
  )

/** Of an end user of a key, by name: its own, else those of each user. */
export const readUserBudgets = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  prefix: string,
  user: string,
  calendar: Calendar
) {
  const name = storedUser(yield* readUsersOwner(sql, prefix), user)
  const own = (option: string, each: string) =>
    sql`coalesce((user_rules -> ${name} ->> ${option})::bigint, ${sql.literal(each)})`
  return yield* read(
    sql,
    sql`${own("daily", "each_user_daily")} AS "budgetDaily", ${own("weekly", "each_user_weekly")} AS "budgetWeekly",
      NULL AS "extraBudget", ${own("monthly", "each_user_monthly")} AS "budgetMonthly",
      ${own("total", "each_user_total")} AS "budgetTotal", ${ofKey(sql, prefix)}`,
    ({ id }) => ({ group: "", key: id, user: userAccountId(id, name) }),
    keyNamed(prefix),
    new UnknownKey({ prefix }),
    calendar
  )
})

export const readTenantBudgets = (sql: SqlClient.SqlClient, tenant: string, calendar: Calendar) =>
  read(
    sql,
    sql`${selected(sql, "t", budgets)}, id::text FROM tenants t WHERE name = ${tenant}`,
    ({ id }) => ({ group: id }),
    tenantNamed(tenant),
    new UnknownTenant({ tenant }),
    calendar
  )
