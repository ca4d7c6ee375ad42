/** Token budgets of keys and tenants: their amounts, and the tokens that the ledger counts. */
import { Effect, Schema, Struct } from "effect"
import type { SqlClient } from "effect/sql"
import type { Calendar } from "../domain/Calendar.ts"
import { ofPeriod } from "../domain/Errors.ts"
import { budgetUseOf, extraOf, type Period, periods } from "../domain/Limits.ts"
import type { CounterOwner } from "../domain/Reservation.ts"
import { KeyAttributes } from "../domain/attributes.ts"
import { extraBudgetOf } from "../domain/storedRules.ts"
import { userAccountId } from "../domain/EndUser.ts"
import { accountOf } from "../gates/keys/accounts.ts"
import { makeRowReader, selected } from "../infra/rows.ts"
import { idOf, readTotals, type Totals } from "../ledger/totals.ts"
import { UnknownKey, UnknownTenant } from "./Errors.ts"
import { budgetFields, budgetOf, type BudgetState, type Owner, ownerNamed } from "./rows.ts"
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

/**
 * The budgets of a tenant, of all keys that share the account of a key, or of one end user of a key by name: its own, else those of
 * each user.
 */
export const readBudgets = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  owner: Owner,
  user: string | undefined,
  { dayAt }: Calendar
) {
  const name =
    "tenant" in owner || user === undefined
      ? undefined
      : storedUser(yield* readUsersOwner(sql, owner.key), user)
  const own = (period: Period, option = ofPeriod[period]) =>
    sql`coalesce((o.user_rules -> ${name ?? ""} ->> ${option})::bigint, ${sql.literal(`o.each_user_${option}) AS "${budgetOf[period]}"`)}`
  const amounts =
    name === undefined
      ? selected(sql, "o", budgets)
      : sql.csv([sql`NULL AS "extraBudget"`, ...periods.map((period) => own(period))])
  const row = yield* makeRowReader(() => ownerNamed(owner), Row).first(sql`
    SELECT ${sql.literal(now)}, ${amounts}, ${
      "key" in owner
        ? sql`${accountOf(sql, "o")}::text AS id FROM api_keys o WHERE o.prefix = ${owner.key}`
        : sql`o.id::text FROM tenants o WHERE o.name = ${owner.tenant}`
    }`)
  if (row === undefined)
    return yield* "key" in owner
      ? new UnknownKey({ prefix: owner.key })
      : new UnknownTenant({ tenant: owner.tenant })
  const ofKey = name === undefined ? { key: row.id } : { key: row.id, user: userAccountId(row.id, name) }
  const counters: CounterOwner = "key" in owner ? { group: "", ...ofKey } : { group: row.id }
  const totals = yield* readTotals(sql, [counters], dayAt(row.at))
  return statesOf(row, totals.get(idOf(counters)))
})
