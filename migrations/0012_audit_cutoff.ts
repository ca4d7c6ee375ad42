import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * The first of three steps that make monthly partitions of the audit log, so that old months can be dropped whole.
 *
 * A request id is a UUIDv7: it begins with the time of arrival. So the log is partitioned by ranges of ids, the primary key
 * stays (request_id) alone, and `ON CONFLICT (request_id)` works as before, for older versions too.
 *
 * The table of today becomes the partition of all ids before a cutoff. Postgres believes that no row is beyond the cutoff
 * only after it has read the whole table. Each step is a transaction of its own, so that no strong lock is held meanwhile:
 *
 * 1. A CHECK that is not validated. It holds for new rows, so the cutoff is one to two months away.
 * 2. Validate it, which reads the table but lets others write (`0013_audit_validated.ts`).
 * 3. Rename the table and attach it, which reads nothing (`0014_audit_partitions.ts`).
 *
 * An empty log needs no proof and is partitioned here.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // The smallest id of a request that arrives at that time, and the time of an id.
  yield* sql`
    CREATE OR REPLACE FUNCTION first_request_id(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
      SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid $$`
  yield* sql`
    CREATE OR REPLACE FUNCTION request_id_time(id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
      SELECT to_timestamp(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000.0) $$`

  /*
   * Makes the table the first partition of a new one with the same name, columns, rules, indexes, trigger, owner and rights.
   * Indexes that are equal are attached and not built. `0014_audit_partitions.ts` removes the function.
   */
  yield* sql`
    CREATE OR REPLACE FUNCTION partition_audit_log(cutoff uuid) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
      one record;
      rights text[] := '{}';
      command text;
    BEGIN
      FOR one IN
        SELECT acl.privilege_type AS privilege, acl.grantee, NULL AS column_name
        FROM pg_class c CROSS JOIN aclexplode(c.relacl) acl WHERE c.oid = 'audit_log'::regclass AND acl.grantee <> c.relowner
        UNION ALL
        SELECT acl.privilege_type, acl.grantee, quote_ident(a.attname)
        FROM pg_attribute a CROSS JOIN aclexplode(a.attacl) acl WHERE a.attrelid = 'audit_log'::regclass
      LOOP
        rights := rights || format('%s%s ON %%s %%s %s', one.privilege, ' (' || one.column_name || ')',
          CASE one.grantee WHEN 0 THEN 'PUBLIC' ELSE replace(quote_ident(pg_get_userbyid(one.grantee)), '%', '%%') END);
      END LOOP;

      -- On a log with rows the second step has done this.
      FOR one IN
        SELECT conname FROM pg_constraint WHERE conrelid = 'audit_log'::regclass AND contype = 'c' AND NOT convalidated
      LOOP
        EXECUTE format('ALTER TABLE audit_log VALIDATE CONSTRAINT %I', one.conname);
      END LOOP;

      ALTER TABLE audit_log RENAME TO audit_log_old;
      FOR one IN
        SELECT i.indexrelid::regclass AS index, c.relname AS name FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid = 'audit_log_old'::regclass
      LOOP
        EXECUTE format('ALTER INDEX %s RENAME TO %I', one.index,
          CASE WHEN one.name ^@ 'audit_log' THEN 'audit_log_old' || substr(one.name, 10) ELSE one.name || '_old' END);
      END LOOP;

      CREATE TABLE audit_log (LIKE audit_log_old INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE)
        PARTITION BY RANGE (request_id);
      ALTER TABLE audit_log DROP CONSTRAINT IF EXISTS audit_log_cutoff;
      ALTER TABLE audit_log ADD CONSTRAINT audit_log_pkey PRIMARY KEY (request_id);
      FOR one IN
        SELECT pg_get_indexdef(i.indexrelid) AS definition, c.relname AS name
        FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid = 'audit_log_old'::regclass AND NOT i.indisunique AND i.indisvalid
      LOOP
        EXECUTE regexp_replace(one.definition, '^CREATE INDEX .* USING ', format('CREATE INDEX %I ON audit_log USING ',
          CASE WHEN one.name ^@ 'audit_log_old' THEN 'audit_log' || substr(one.name, 14) ELSE regexp_replace(one.name, '_old$', '') END));
      END LOOP;
      EXECUTE format('ALTER TABLE audit_log ATTACH PARTITION audit_log_old FOR VALUES FROM (MINVALUE) TO (%L)', cutoff);
      ALTER TABLE audit_log_old DROP CONSTRAINT IF EXISTS audit_log_cutoff;
      -- What no month has room for: rows are never refused because a partition is missing.
      IF to_regclass('audit_log_default') IS NULL THEN
        CREATE TABLE audit_log_default PARTITION OF audit_log DEFAULT;
      ELSE
        ALTER TABLE audit_log ATTACH PARTITION audit_log_default DEFAULT;
      END IF;

      DROP TRIGGER IF EXISTS audit_log_usage ON audit_log_old;
      CREATE TRIGGER audit_log_usage AFTER INSERT ON audit_log
        REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION book_usage();

      EXECUTE format('ALTER TABLE audit_log OWNER TO %I',
        (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = 'audit_log_old'::regclass));
      -- A running gateway goes on writing with its own role. Nobody writes past the trigger.
      FOREACH command IN ARRAY rights LOOP
        EXECUTE 'GRANT ' || format(command, 'audit_log', 'TO');
        EXECUTE 'REVOKE ' || format(command, 'audit_log_old', 'FROM');
      END LOOP;
    END $$`

  yield* sql`
    DO $$
    DECLARE
      cutoff uuid := first_request_id(date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' + interval '2 months');
    BEGIN
      IF (SELECT relkind FROM pg_class WHERE oid = 'audit_log'::regclass) = 'p' THEN RETURN; END IF;
      LOCK TABLE audit_log IN ACCESS EXCLUSIVE MODE;
      IF NOT EXISTS (SELECT FROM audit_log) THEN
        PERFORM partition_audit_log(first_request_id(date_trunc('month', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'));
        RETURN;
      END IF;
      -- Rows with an id from the future, of a clock that was wrong.
      IF EXISTS (SELECT FROM audit_log WHERE request_id >= cutoff) THEN
        CREATE TABLE audit_log_default (LIKE audit_log INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE);
        WITH moved AS (DELETE FROM audit_log WHERE request_id >= cutoff RETURNING *) INSERT INTO audit_log_default SELECT * FROM moved;
      END IF;
      EXECUTE format('ALTER TABLE audit_log ADD CONSTRAINT audit_log_cutoff CHECK (request_id < %L) NOT VALID', cutoff);
    END $$`
})
