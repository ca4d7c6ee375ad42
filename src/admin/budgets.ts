/** Token budgets of keys and tenants: their amounts, and the tokens that the ledger counts. */
import { Effect, Schema, Struct } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { budgetUseOf, periods } from "../domain/Limits.ts"
import { KeySettings } from "../domain/settings.ts"
import { endUserOf, hashedUser, userAccountId } from "../domain/EndUser.ts"
import { accountOf } from "../gates/keys/accounts.ts"
import { makeRowReader, selected } from "../infra/rows.ts"
import { daysOf, sumsByPeriod } from "../ledger/periods.ts"
import { UnknownKey, UnknownTenant } from "./Errors.ts"
import { budgetFields, budgetOf, type BudgetState, keyNamed, tenantNamed } from "./rows.ts"

const budgets = Struct.pick(KeySettings.fields, budgetFields)

const Sums = Schema.Struct({ ...budgets, day: Schema.Finite, month: Schema.Finite, total: Schema.Finite })

/** The states of the one row of `of`, which `queries` have selected, with the rows `l` of the ledger that belong to it. */
const read = Effect.fnUntraced(function* <E>(
  sql: SqlClient.SqlClient,
  of: "k" | "t",
  queries: Statement.Fragment,
  ledger: Statement.Fragment,
  name: string,
  unknown: E,
  table = "ledger"
) {
  const row = yield* makeRowReader(() => name, Sums).first(sql`
      WITH at AS MATERIALIZED (${daysOf(sql, sql`now()`)}), ${queries}
      SELECT ${selected(sql, of, budgets)}, ${sumsByPeriod(sql, { day: "l.day", tokens: "l.tokens_in + l.tokens_out" })}
      FROM at CROSS JOIN ${sql.literal(of)} LEFT JOIN ${sql.literal(table)} l ON ${ledger} GROUP BY 1, 2, 3`)
  if (row === undefined) return yield* Effect.fail(unknown)
  return periods.map((period): BudgetState => {
    const budget = row[budgetOf[period]]
    const spent = row[period]
    return { period, budget, spent, state: budget === null ? null : budgetUseOf(budget, spent) }
  })
})

/** What was spent is what all keys of the account have spent. */
export const readBudgets = (sql: SqlClient.SqlClient, prefix: string) =>
  read(
    sql,
    "k",
    sql`k AS (SELECT *, ${accountOf(sql, "api_keys")} AS account FROM api_keys WHERE prefix = ${prefix}),
      keys AS (SELECT account AS id FROM k UNION SELECT o.id FROM k JOIN api_keys o ON o.budget_account = k.account)`,
    sql`l.key_id IN (SELECT id FROM keys)`,
    keyNamed(prefix),
    new UnknownKey({ prefix })
  )

const UserOwner = Schema.Struct({ account: Schema.String, hashed: Schema.Boolean })

/** Of an end user of a key, by name. */
export const readUserBudgets = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  prefix: string,
  user: string
) {
  const key = yield* makeRowReader(() => keyNamed(prefix), UserOwner).first(
    sql`SELECT ${accountOf(sql, "k")}::text AS account, k.hash_users AS hashed FROM api_keys k WHERE prefix = ${prefix}`
  )
  if (key === undefined) return yield* new UnknownKey({ prefix })
  const name = endUserOf(user)
  const id = userAccountId(
    key.account,
    key.hashed && name !== undefined ? hashedUser(key.account, name) : name
  )
  return yield* read(
    sql,
    "k",
    sql`k AS (SELECT each_user_daily AS budget_daily, each_user_monthly AS budget_monthly, each_user_total AS budget_total
        FROM api_keys WHERE prefix = ${prefix}),
      mine AS (SELECT * FROM user_ledger WHERE user_account = ${id}::text::uuid)`,
    sql`true`,
    keyNamed(prefix),
    new UnknownKey({ prefix }),
    "mine"
  )
})

export const readTenantBudgets = (sql: SqlClient.SqlClient, tenant: string) =>
  read(
    sql,
    "t",
    sql`t AS (SELECT * FROM tenants WHERE name = ${tenant})`,
    sql`l.tenant_id = t.id`,
    tenantNamed(tenant),
    new UnknownTenant({ tenant })
  )

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
