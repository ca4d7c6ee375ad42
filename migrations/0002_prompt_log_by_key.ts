import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** One key's logged prompts, newest first: to be read and erased without reading everybody's. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`CREATE INDEX prompt_log_key ON prompt_log (key_id, created_at)`
})
