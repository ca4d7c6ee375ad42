import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Built before the migration, without a lock that keeps writers waiting, unless the log is empty (partitioned) already. */
export const completedIndex = {
  name: "audit_log_completed",
  table: "audit_log",
  definition: "audit_log (completed_at)"
}

/**
 * The second step to monthly partitions of the audit log (`0012_audit_cutoff.ts`): it reads the whole log while others read
 * and write it.
 *
 * The index finds the rows that were written since a moment: `tollgate requests --follow` reads them, in the order of their
 * writing.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    DO $$
    DECLARE
      one record;
    BEGIN
      FOR one IN
        SELECT conname FROM pg_constraint WHERE conrelid = 'audit_log'::regclass AND contype = 'c' AND NOT convalidated
      LOOP
        EXECUTE format('ALTER TABLE audit_log VALIDATE CONSTRAINT %I', one.conname);
      END LOOP;
    END $$`
  yield* sql`CREATE INDEX IF NOT EXISTS audit_log_completed ON audit_log (completed_at)`
})
