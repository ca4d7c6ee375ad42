import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Corrections of audit rows. When a process seems dead, another replica closes its requests as aborted. If the process was
 * only paused and ends a request after all, the difference becomes a row here, once for each request. Rows here never
 * change, as those of the log. Sums over the audit include them.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    CREATE TABLE IF NOT EXISTS audit_corrections (
      request_id uuid PRIMARY KEY,
      tenant_id uuid NOT NULL,
      key_id uuid NOT NULL,
      key_prefix text,
      -- of the audit row: its UTC day is the ledger day that was corrected
      admitted_at timestamptz NOT NULL,
      -- added to the audit row's; negative when fewer were used than had been booked
      tokens_in bigint NOT NULL,
      tokens_out bigint NOT NULL,
      usage_source text CHECK (usage_source IN ('backend', 'counted', 'estimated')),
      -- what the client was told
      status integer NOT NULL CHECK (status BETWEEN 100 AND 599),
      error_type text,
      corrected_at timestamptz NOT NULL DEFAULT now()
    )`
  yield* sql`CREATE INDEX IF NOT EXISTS audit_corrections_key ON audit_corrections (key_id, admitted_at)`
})
