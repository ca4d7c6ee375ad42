import { randomBytes } from "node:crypto"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * A secret that all replicas share and that survives restarts. It seals the `context` of an answer; any replica can open it.
 * Deleting the row and restarting the gateways makes every context invalid.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    CREATE TABLE IF NOT EXISTS sealing_secrets (
      purpose text PRIMARY KEY,
      secret bytea NOT NULL CHECK (octet_length(secret) = 32)
    )`
  yield* sql`
    INSERT INTO sealing_secrets (purpose, secret)
    VALUES ('context', decode(${randomBytes(32).toString("hex")}, 'hex'))
    ON CONFLICT (purpose) DO NOTHING`
})
