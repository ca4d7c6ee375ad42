import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** What an alias of a tenant adds to its requests, by the name of the alias. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    ALTER TABLE tenants ADD COLUMN alias_defaults jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(alias_defaults) = 'object')`
})
