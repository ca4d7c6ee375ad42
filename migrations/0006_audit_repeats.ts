import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * How many requests a row stands for: one, but for refusals beyond what a sender may have rows of his own for. No
 * statement reads the log, so it takes no longer on a large one.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE audit_log ADD COLUMN IF NOT EXISTS repeats integer NOT NULL DEFAULT 1`
  yield* sql`ALTER TABLE audit_log DROP CONSTRAINT IF EXISTS audit_log_repeats`
  yield* sql`ALTER TABLE audit_log ADD CONSTRAINT audit_log_repeats CHECK (repeats > 0) NOT VALID`
})
