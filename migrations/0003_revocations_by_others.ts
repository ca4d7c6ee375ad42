import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Whoever may write into the outbox may revoke, and need not be allowed anything else: its trigger acts for the owner
 * of the schema. `pg_temp` comes last, so that nobody's temporary table takes the place of ours.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    DO $$ BEGIN
      EXECUTE format(
        'ALTER FUNCTION apply_revocation() SECURITY DEFINER SET search_path = pg_catalog, %I, pg_temp',
        current_schema());
    END $$`
})
