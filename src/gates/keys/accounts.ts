/** Who has a budget, in SQL: an account, which is a key with the keys that replaced it, or a tenant with all its keys. */
import type { SqlClient, Statement } from "effect/sql"

/** The account of the row of `api_keys` named `key`. */
export const accountOf = (sql: SqlClient.SqlClient, key: string): Statement.Fragment =>
  sql.literal(`coalesce(${key}.budget_account, ${key}.id)`)

/** A query for the keys of an account. The first has the account's id, and may have been deleted. */
export const keysOfAccount = (sql: SqlClient.SqlClient, account: string): Statement.Fragment =>
  sql`SELECT ${account}::text::uuid UNION SELECT id FROM api_keys WHERE budget_account = ${account}::text::uuid`

/** A query for the keys of a tenant. */
export const keysOfTenant = (sql: SqlClient.SqlClient, tenant: string): Statement.Fragment =>
  sql`SELECT id FROM api_keys WHERE tenant_id = ${tenant}::text::uuid`
