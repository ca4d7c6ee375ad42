import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * What the audit says of a request in addition: for whom it was made, by which alias it named its model, and whether the
 * model server cut its prompt. The aliases belong to a tenant, the header that names the user belongs to a key. The checks
 * of the log are not valid for old rows, so the migration does not read them.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    ALTER TABLE api_keys ADD COLUMN IF NOT EXISTS end_user_header text
      CHECK (end_user_header ~ '^[!#$%&''*+.^_|~0-9A-Za-z\x60-]{1,64}$')`
  yield* sql`
    ALTER TABLE tenants ADD COLUMN IF NOT EXISTS model_aliases jsonb NOT NULL DEFAULT '{}'
      CHECK (jsonb_typeof(model_aliases) = 'object')`
  yield* sql`
    ALTER TABLE intents ADD COLUMN IF NOT EXISTS end_user text, ADD COLUMN IF NOT EXISTS alias text`
  yield* sql`
    ALTER TABLE audit_log ADD COLUMN IF NOT EXISTS end_user text, ADD COLUMN IF NOT EXISTS alias text,
      ADD COLUMN IF NOT EXISTS truncated boolean`
  yield* sql`ALTER TABLE audit_log DROP CONSTRAINT IF EXISTS audit_log_texts`
  yield* sql`
    ALTER TABLE audit_log ADD CONSTRAINT audit_log_texts
      CHECK (char_length(end_user) <= 128 AND char_length(alias) <= 128) NOT VALID`
})
