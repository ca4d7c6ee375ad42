import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Limits for single models, of a key and of each key of a tenant, by the model's name without `:latest`. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  for (const table of ["tenants", "api_keys"]) {
    yield* sql`
      ALTER TABLE ${sql.literal(table)}
        ADD COLUMN model_rules jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(model_rules) = 'object')`
  }
})
