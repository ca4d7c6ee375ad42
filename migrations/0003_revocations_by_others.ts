import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * A database role that may insert into `revocations` can revoke keys and needs no other right, because the trigger runs with
 * the rights of the schema's owner. `pg_temp` comes last, so that a temporary table cannot replace one of ours.
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
