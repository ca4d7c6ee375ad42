import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Weights and priorities of the queue for the backend, and how long a request waited in it. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    ALTER TABLE tenants ADD COLUMN IF NOT EXISTS weight integer NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 1000)`
  yield* sql`
    ALTER TABLE api_keys ADD COLUMN IF NOT EXISTS priority text NOT NULL DEFAULT 'interactive'
      CHECK (priority IN ('interactive', 'batch'))`
  yield* sql`ALTER TABLE audit_log ADD COLUMN IF NOT EXISTS queued_ms integer CHECK (queued_ms >= 0)`
})
