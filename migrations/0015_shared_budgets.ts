import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Budgets of tenants, and accounts that several keys share: a key that replaces another has the account of the first of them.
 * NULL means its own, so existing keys keep what they have spent.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    ALTER TABLE tenants
      ADD COLUMN IF NOT EXISTS budget_daily bigint CHECK (budget_daily BETWEEN 0 AND 9007199254740991),
      ADD COLUMN IF NOT EXISTS budget_monthly bigint CHECK (budget_monthly BETWEEN 0 AND 9007199254740991),
      ADD COLUMN IF NOT EXISTS budget_total bigint CHECK (budget_total BETWEEN 0 AND 9007199254740991)`
  yield* sql`ALTER TABLE api_keys ADD COLUMN IF NOT EXISTS budget_account uuid`
  yield* sql`
    CREATE INDEX IF NOT EXISTS api_keys_budget_account ON api_keys (budget_account) WHERE budget_account IS NOT NULL`
})
