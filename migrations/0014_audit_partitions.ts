import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * The third step to monthly partitions of the audit log (`0012_audit_cutoff.ts`), and the functions that make and drop them.
 * The functions run with the rights of the schema's owner: the gateway's own role changes no table.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    DO $$ BEGIN
      IF (SELECT relkind FROM pg_class WHERE oid = 'audit_log'::regclass) <> 'p' THEN
        PERFORM partition_audit_log((
          SELECT (regexp_match(pg_get_constraintdef(oid), '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'))[1]::uuid
          FROM (SELECT oid FROM pg_constraint WHERE conrelid = 'audit_log'::regclass AND conname = 'audit_log_cutoff') c));
      END IF;
    END $$`
  yield* sql`DROP FUNCTION IF EXISTS partition_audit_log(uuid)`

  // The partitions with the ids that they have; NULL: no bound. The default partition has no ids of its own.
  yield* sql`
    CREATE OR REPLACE VIEW audit_partitions AS
    SELECT c.oid::regclass AS partition, c.relname::text AS name, bound = 'DEFAULT' AS is_default,
      (regexp_match(bound, 'FROM [(]''([0-9a-f-]{36})'''))[1]::uuid AS from_id,
      (regexp_match(bound, 'TO [(]''([0-9a-f-]{36})'''))[1]::uuid AS to_id,
      greatest(c.reltuples, 0)::bigint AS estimated_rows, pg_total_relation_size(c.oid) AS bytes
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid CROSS JOIN pg_get_expr(c.relpartbound, c.oid) AS bound
    WHERE i.inhparent = 'audit_log'::regclass`

  /*
   * Makes the partitions of this month and the next three that are missing, and returns how many. One transaction at a time
   * does it. A month stays in the default partition once it has rows there. A new partition makes Postgres read the default
   * partition, so nothing is made while that is large. Waiting for a lock is bounded, because writers queue behind it.
   */
  yield* sql`
    CREATE OR REPLACE FUNCTION prepare_audit_months() RETURNS integer LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
    DECLARE
      schema regnamespace := (SELECT relnamespace FROM pg_class WHERE oid = 'audit_log'::regclass);
      this_month timestamp := date_trunc('month', now() AT TIME ZONE 'UTC');
      month timestamp;
      first uuid;
      next uuid;
      made integer := 0;
    BEGIN
      IF NOT pg_try_advisory_xact_lock(7309454) THEN RETURN 0; END IF;
      FOR n IN 0..3 LOOP
        month := this_month + n * interval '1 month';
        first := first_request_id(month AT TIME ZONE 'UTC');
        next := first_request_id((month + interval '1 month') AT TIME ZONE 'UTC');
        CONTINUE WHEN EXISTS (
          SELECT FROM audit_partitions WHERE NOT is_default AND (from_id IS NULL OR from_id < next) AND to_id > first);
        CONTINUE WHEN EXISTS (SELECT FROM audit_log_default WHERE request_id >= first AND request_id < next);
        IF pg_relation_size('audit_log_default') > 268435456 THEN
          RAISE EXCEPTION 'audit_log_default is too large to make partitions beside it' USING ERRCODE = 'program_limit_exceeded';
        END IF;
        EXECUTE format('CREATE TABLE %s.%I (LIKE audit_log INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)',
          schema, to_char(month, '"audit_log_"YYYY_MM'));
        EXECUTE format('ALTER TABLE audit_log ATTACH PARTITION %s.%I FOR VALUES FROM (%L) TO (%L)',
          schema, to_char(month, '"audit_log_"YYYY_MM'), first, next);
        made := made + 1;
      END LOOP;
      RETURN made;
    END $$`

  /*
   * One step of removing what arrived before a time: drops the oldest partition that has nothing later, else deletes up to
   * 5,000 rows of older months from the default partition, else as many corrections. Returns no row when nothing is left.
   */
  yield* sql`
    CREATE OR REPLACE FUNCTION prune_audit(older_than timestamptz) RETURNS TABLE (relation text, removed bigint)
    LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
    DECLARE
      before timestamptz := date_trunc('month', least(older_than, now() - interval '1 day') AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
    BEGIN
      IF NOT pg_try_advisory_xact_lock(7309454) THEN
        RAISE EXCEPTION 'partitions of the audit log are being changed' USING ERRCODE = 'lock_not_available';
      END IF;
      SELECT p.name, p.estimated_rows INTO relation, removed FROM audit_partitions p
      WHERE p.to_id <= first_request_id(before) ORDER BY p.to_id LIMIT 1;
      IF relation IS NOT NULL THEN
        EXECUTE format('DROP TABLE %s', (SELECT p.partition FROM audit_partitions p WHERE p.name = relation));
        RETURN NEXT;
        RETURN;
      END IF;
      relation := 'audit_log_default';
      DELETE FROM audit_log_default WHERE request_id IN (
        SELECT d.request_id FROM audit_log_default d WHERE d.arrived_at < before LIMIT 5000);
      GET DIAGNOSTICS removed = ROW_COUNT;
      IF removed > 0 THEN RETURN NEXT; RETURN; END IF;
      relation := 'audit_corrections';
      DELETE FROM audit_corrections WHERE request_id IN (
        SELECT c.request_id FROM audit_corrections c WHERE c.request_id < first_request_id(before) LIMIT 5000);
      GET DIAGNOSTICS removed = ROW_COUNT;
      IF removed > 0 THEN RETURN NEXT; END IF;
    END $$`
  // By default everybody may call a function.
  yield* sql`REVOKE ALL ON FUNCTION prune_audit(timestamptz) FROM PUBLIC`
  for (const name of ["prepare_audit_months()", "prune_audit(timestamptz)"]) {
    yield* sql`
      DO $$ BEGIN
        EXECUTE format(
          'ALTER FUNCTION ${sql.literal(name)} SECURITY DEFINER SET search_path = pg_catalog, %I, pg_temp', current_schema());
      END $$`
  }
  yield* sql`SELECT prepare_audit_months()`
})
