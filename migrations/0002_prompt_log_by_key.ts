import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** An index to read and erase the prompts of one key without reading those of all keys. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`CREATE INDEX prompt_log_key ON prompt_log (key_id, created_at)`
})
