import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * The number of requests that a row stands for. It is 1, except for refusals beyond the rate of a sender. The migration
 * does not read the log, so it is as fast on a large one.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE audit_log ADD COLUMN IF NOT EXISTS repeats integer NOT NULL DEFAULT 1`
  yield* sql`ALTER TABLE audit_log DROP CONSTRAINT IF EXISTS audit_log_repeats`
  yield* sql`ALTER TABLE audit_log ADD CONSTRAINT audit_log_repeats CHECK (repeats > 0) NOT VALID`
})
