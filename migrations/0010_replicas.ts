import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** The state of each running process, for `tollgate status`. Each process writes its own row and deletes it at its end. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    CREATE TABLE IF NOT EXISTS replicas (
      id uuid PRIMARY KEY,
      host text NOT NULL,
      version text NOT NULL,
      started_at timestamptz NOT NULL DEFAULT now(),
      seen_at timestamptz NOT NULL DEFAULT now(),
      -- gauges by name, as in the metrics; null when a gauge has no finite value
      gauges jsonb NOT NULL
    )`
})
