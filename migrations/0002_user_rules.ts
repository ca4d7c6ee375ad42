import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Limits, budgets and blocks of single end users of a key, by the name that the audit stores. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    ALTER TABLE api_keys ADD COLUMN user_rules jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(user_rules) = 'object')`
})
