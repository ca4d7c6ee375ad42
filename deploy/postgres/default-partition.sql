-- Moves what is in audit_log_default to a partition for each of its months. Run it as the owner of the schema when
-- `audit_months` fails because audit_log_default is too large (more than 256 MiB), with gateways running:
--
--   psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -f deploy/postgres/default-partition.sql
--
-- Needs free space for a copy of audit_log_default. Copying blocks nobody. Then the tables change places in one short
-- transaction, in which writers wait. When it ends with "lock timeout", nothing has changed: run it again. Ledger and sums of
-- usage do not change, because rows that are copied into a partition are not counted again.

-- The copies. They are ordinary tables until the end, and the ones of a run that was broken off are made anew.
DO $$
DECLARE
  schema regnamespace := (SELECT relnamespace FROM pg_class WHERE oid = 'audit_log'::regclass);
  month record;
BEGIN
  FOR month IN
    SELECT to_char(at, '"audit_log_"YYYY_MM') AS name, first_request_id(at AT TIME ZONE 'UTC') AS first,
      first_request_id((at + interval '1 month') AT TIME ZONE 'UTC') AS next
    FROM (SELECT DISTINCT date_trunc('month', request_id_time(request_id) AT TIME ZONE 'UTC') AS at FROM audit_log_default) months
  LOOP
    IF EXISTS (SELECT FROM pg_constraint WHERE conname = 'month_bounds' AND conrelid = to_regclass(month.name)) THEN
      EXECUTE format('DROP TABLE %s.%I', schema, month.name);
    END IF;
    EXECUTE format('CREATE TABLE %s.%I (LIKE audit_log INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING STORAGE INCLUDING INDEXES,
      CONSTRAINT month_bounds CHECK (request_id >= %L AND request_id < %L))', schema, month.name, month.first, month.next);
    EXECUTE format('INSERT INTO %s.%I SELECT * FROM audit_log_default WHERE request_id >= %L AND request_id < %L',
      schema, month.name, month.first, month.next);
    RAISE NOTICE 'copied the rows of %', month.name;
  END LOOP;
END $$;

-- The tables change places.
DO $$
DECLARE
  month record;
  rows bigint;
  copied bigint := 0;
BEGIN
  SET LOCAL lock_timeout = '2s';
  IF NOT pg_try_advisory_xact_lock(7309454) THEN
    RAISE EXCEPTION 'partitions of the audit log are being changed: run it again' USING ERRCODE = 'lock_not_available';
  END IF;
  LOCK TABLE audit_log IN ACCESS EXCLUSIVE MODE;
  ALTER TABLE audit_log DETACH PARTITION audit_log_default;
  FOR month IN
    SELECT name, first_request_id(at AT TIME ZONE 'UTC') AS first,
      first_request_id((at + interval '1 month') AT TIME ZONE 'UTC') AS next
    FROM (
      SELECT conrelid::regclass AS name, to_date(right(conrelid::regclass::text, 7), 'YYYY_MM')::timestamp AS at
      FROM pg_constraint WHERE conname = 'month_bounds') copies
  LOOP
    -- What was written since it was copied. No transaction of a gateway lasts for five minutes.
    EXECUTE format('INSERT INTO %s SELECT * FROM audit_log_default WHERE request_id >= %L AND request_id < %L
      AND completed_at >= (SELECT max(completed_at) FROM %1$s) - interval ''5 minutes''
      ON CONFLICT (request_id) DO NOTHING', month.name, month.first, month.next);
    EXECUTE format('SELECT count(*) FROM %s', month.name) INTO rows;
    copied := copied + rows;
    EXECUTE format('ALTER TABLE audit_log ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)', month.name, month.first, month.next);
    EXECUTE format('ALTER TABLE %s DROP CONSTRAINT month_bounds', month.name);
  END LOOP;
  SELECT count(*) FROM audit_log_default INTO rows;
  IF rows <> copied THEN
    RAISE EXCEPTION '% of % rows were copied: a month has begun meanwhile, run it again', copied, rows;
  END IF;
  DROP TABLE audit_log_default;
  CREATE TABLE audit_log_default PARTITION OF audit_log DEFAULT;
END $$;

SELECT prepare_audit_months() AS made;

SELECT name, estimated_rows, bytes FROM audit_partitions ORDER BY from_id;
