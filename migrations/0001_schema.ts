import { randomBytes } from "node:crypto"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** The first schema. Later migrations only add to it (`src/infra/Migrations.ts`). */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // The oldest version of the program that may run on the schema (`minimumVersion`).
  yield* sql`ALTER TABLE schema_migrations ADD COLUMN minimum_version integer`

  // -- Tenants and keys

  yield* sql`
    CREATE TABLE tenants (
      id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
      name text NOT NULL UNIQUE CHECK (name ~ '^[^[:cntrl:]]{1,64}$' AND name = btrim(name)),
      rpm integer NOT NULL CHECK (rpm > 0),
      tpm integer NOT NULL CHECK (tpm > 0),
      concurrent integer NOT NULL CHECK (concurrent > 0),
      -- the tenant's share of the queue
      weight integer NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 1000),
      allow_all_models boolean NOT NULL DEFAULT false,
      allowed_models text[] NOT NULL DEFAULT '{}' CHECK (array_position(allowed_models, NULL) IS NULL),
      -- the model of each alias
      model_aliases jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(model_aliases) = 'object'),
      -- shared by the keys of the tenant; null: no budget
      budget_daily bigint CHECK (budget_daily BETWEEN 0 AND 9007199254740991),
      budget_monthly bigint CHECK (budget_monthly BETWEEN 0 AND 9007199254740991),
      budget_total bigint CHECK (budget_total BETWEEN 0 AND 9007199254740991),
      disabled boolean NOT NULL DEFAULT false,
      created_at timestamptz NOT NULL DEFAULT now()
    )`

  yield* sql`
    CREATE TABLE api_keys (
      id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
      tenant_id uuid NOT NULL REFERENCES tenants (id),
      name text NOT NULL CHECK (name ~ '^[^[:cntrl:]]{1,64}$' AND name = btrim(name)),
      prefix text NOT NULL UNIQUE CHECK (prefix ~ '^[A-Za-z0-9]{2}_[0-9A-Za-z]{9}$'),
      hash text NOT NULL CHECK (hash LIKE '$argon2id$%'),
      scopes text[] NOT NULL DEFAULT '{chat,embeddings}'
        CHECK (scopes <@ ARRAY['chat', 'embeddings'] AND cardinality(scopes) > 0),
      status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'disabled', 'revoked')),
      created_at timestamptz NOT NULL DEFAULT now(),
      expires_at timestamptz,
      -- null: the tenant's limit
      rpm integer CHECK (rpm > 0),
      tpm integer CHECK (tpm > 0),
      concurrent integer CHECK (concurrent > 0),
      priority text NOT NULL DEFAULT 'interactive' CHECK (priority IN ('interactive', 'batch')),
      -- null: no budget
      budget_daily bigint CHECK (budget_daily BETWEEN 0 AND 9007199254740991),
      budget_monthly bigint CHECK (budget_monthly BETWEEN 0 AND 9007199254740991),
      budget_total bigint CHECK (budget_total BETWEEN 0 AND 9007199254740991),
      -- a key that replaces another shares the account of the first of them; null: its own
      budget_account uuid,
      -- the request header that names the end user
      end_user_header text CHECK (end_user_header ~ '^[!#$%&''*+.^_|~0-9A-Za-z\x60-]{1,64}$'),
      -- names of end users are stored as hashes
      hash_users boolean NOT NULL DEFAULT false,
      -- of each end user; null: no limit or budget of its own
      each_user_rpm integer CHECK (each_user_rpm > 0),
      each_user_tpm integer CHECK (each_user_tpm > 0),
      each_user_concurrent integer CHECK (each_user_concurrent > 0),
      each_user_daily bigint CHECK (each_user_daily BETWEEN 0 AND 9007199254740991),
      each_user_monthly bigint CHECK (each_user_monthly BETWEEN 0 AND 9007199254740991),
      each_user_total bigint CHECK (each_user_total BETWEEN 0 AND 9007199254740991),
      CHECK (end_user_header IS NOT NULL OR num_nonnulls(each_user_rpm, each_user_tpm, each_user_concurrent,
        each_user_daily, each_user_monthly, each_user_total) = 0),
      -- the models that it may use of its tenant's; null: all of them
      own_models text[] CHECK (array_position(own_models, NULL) IS NULL),
      prompt_log boolean NOT NULL DEFAULT false,
      prompt_log_days integer CHECK (prompt_log_days BETWEEN 1 AND 3650)
    )`
  yield* sql`CREATE INDEX api_keys_tenant ON api_keys (tenant_id)`
  yield* sql`CREATE INDEX api_keys_budget_account ON api_keys (budget_account) WHERE budget_account IS NOT NULL`

  yield* sql`
    CREATE FUNCTION keep_revoked() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF OLD.status = 'revoked' AND NEW.status <> 'revoked' THEN
        RAISE EXCEPTION 'a revoked key stays revoked' USING ERRCODE = 'check_violation';
      END IF;
      RETURN NEW;
    END $$`
  yield* sql`
    CREATE TRIGGER api_keys_keep_revoked BEFORE UPDATE OF status ON api_keys
    FOR EACH ROW EXECUTE FUNCTION keep_revoked()`

  // A row here does the whole revocation, whichever program writes it. Its role needs no other right.
  yield* sql`
    CREATE TABLE revocations (
      id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      key_prefix text NOT NULL,
      created_at timestamptz NOT NULL DEFAULT now()
    )`
  yield* sql`CREATE INDEX revocations_key_prefix ON revocations (key_prefix)`
  yield* sql`
    CREATE FUNCTION apply_revocation() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      UPDATE api_keys SET status = 'revoked' WHERE prefix = NEW.key_prefix AND status <> 'revoked';
      PERFORM pg_notify('key_revoked', NEW.key_prefix);
      RETURN NULL;
    END $$`
  yield* sql`
    CREATE TRIGGER revocations_apply AFTER INSERT ON revocations
    FOR EACH ROW EXECUTE FUNCTION apply_revocation()`

  // The models that stay loaded. hours: from the first of the day until the second, in UTC; null: always.
  yield* sql`
    CREATE TABLE model_pins (
      model text PRIMARY KEY CHECK (model ~ '^[^[:space:][:cntrl:]]+$' AND char_length(model) <= 350),
      hours text CHECK (hours ~ '^([01][0-9]|2[0-3])-([01][0-9]|2[0-4])$')
    )`

  // -- Requests

  // One row for each open request that may cost tokens. The table stays small, unlike the log.
  yield* sql`
    CREATE TABLE intents (
      request_id uuid PRIMARY KEY,
      tenant_id uuid NOT NULL,
      key_id uuid NOT NULL,
      key_prefix text NOT NULL,
      model text NOT NULL,
      alias text,
      endpoint text NOT NULL,
      method text NOT NULL,
      streamed boolean NOT NULL,
      client_ip text NOT NULL,
      client_request_id text,
      end_user text,
      user_account uuid,
      arrived_at timestamptz NOT NULL,
      admitted_at timestamptz NOT NULL,
      held bigint NOT NULL CHECK (held >= 0),
      tokens_in bigint NOT NULL CHECK (tokens_in >= 0),
      tokens_out bigint NOT NULL DEFAULT 0 CHECK (tokens_out >= 0),
      lease_until timestamptz NOT NULL
    )`
  yield* sql`CREATE INDEX intents_lease ON intents (lease_until)`
  yield* sql`CREATE INDEX intents_key ON intents (key_id)`
  yield* sql`CREATE INDEX intents_user ON intents (user_account) WHERE user_account IS NOT NULL`

  // The audit log. A request id is a UUIDv7, which begins with the time of arrival. So the log has a partition for each
  // month, by ranges of ids, and the primary key is the id alone.
  yield* sql`
    CREATE TABLE audit_log (
      request_id uuid PRIMARY KEY,
      arrived_at timestamptz NOT NULL,
      -- set for what was admitted: its UTC day is the ledger day, so that the ledger is a sum over this table
      admitted_at timestamptz,
      tenant_id uuid,
      key_id uuid,
      key_prefix text,
      method text NOT NULL,
      endpoint text NOT NULL,
      model text CHECK (char_length(model) <= 128),
      alias text CHECK (char_length(alias) <= 128),
      streamed boolean NOT NULL,
      tokens_in bigint NOT NULL CHECK (tokens_in >= 0),
      -- part of tokens_in; null: the model server does not say
      tokens_cached bigint CHECK (tokens_cached >= 0),
      tokens_out bigint NOT NULL CHECK (tokens_out >= 0),
      usage_source text CHECK (usage_source IN ('backend', 'counted', 'estimated')),
      status integer NOT NULL CHECK (status BETWEEN 100 AND 599),
      error_type text,
      -- why a request was refused, for operators
      detail text CHECK (char_length(detail) <= 256),
      latency_ms integer NOT NULL CHECK (latency_ms >= 0),
      -- null: there is no queue
      queued_ms integer CHECK (queued_ms >= 0),
      -- how long the model server loaded the model for the request; null: it was loaded, or another request counts the load
      load_ms integer CHECK (load_ms > 0),
      -- whether the model server cut the prompt
      truncated boolean,
      client_ip text NOT NULL,
      client_request_id text CHECK (char_length(client_request_id) <= 64),
      end_user text CHECK (char_length(end_user) <= 128),
      -- which account of an end user was charged beside the key's; null: none
      user_account uuid,
      -- the number of refusals that the row stands for
      repeats integer NOT NULL DEFAULT 1 CHECK (repeats > 0),
      completed_at timestamptz NOT NULL DEFAULT now()
    ) PARTITION BY RANGE (request_id)`
  yield* sql`CREATE INDEX audit_log_arrived ON audit_log (arrived_at)`
  // Rows without a key are not in it; a flood makes many of them.
  yield* sql`CREATE INDEX audit_log_key ON audit_log (key_prefix, arrived_at) WHERE key_prefix IS NOT NULL`
  // For `tollgate requests --follow`.
  yield* sql`CREATE INDEX audit_log_completed ON audit_log (completed_at)`
  // What no month has room for: no row is refused because its partition is missing.
  yield* sql`CREATE TABLE audit_log_default PARTITION OF audit_log DEFAULT`

  // When a process seems dead, another replica closes its requests as aborted. If the process was only paused and ends a
  // request after all, the difference is a row here, once for each request. Sums over the audit include these rows.
  yield* sql`
    CREATE TABLE audit_corrections (
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
  yield* sql`CREATE INDEX audit_corrections_key ON audit_corrections (key_id, admitted_at)`

  // -- Months of the audit log

  // The smallest id of a request that arrives at that time, and the time of an id.
  yield* sql`
    CREATE FUNCTION first_request_id(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
      SELECT (lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid $$`
  yield* sql`
    CREATE FUNCTION request_id_time(id uuid) RETURNS timestamptz LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
      SELECT to_timestamp(('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 1000.0) $$`

  // The partitions with the ids that they have. The default partition has no ids of its own.
  yield* sql`
    CREATE VIEW audit_partitions AS
    SELECT c.oid::regclass AS partition, c.relname::text AS name, bound = 'DEFAULT' AS is_default,
      (regexp_match(bound, 'FROM [(]''([0-9a-f-]{36})'''))[1]::uuid AS from_id,
      (regexp_match(bound, 'TO [(]''([0-9a-f-]{36})'''))[1]::uuid AS to_id,
      greatest(c.reltuples, 0)::bigint AS estimated_rows, pg_total_relation_size(c.oid) AS bytes
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid CROSS JOIN pg_get_expr(c.relpartbound, c.oid) AS bound
    WHERE i.inhparent = 'audit_log'::regclass`

  // Makes the partitions of this month and the next three that are missing, and returns how many. One transaction at a time
  // does it. A month stays in the default partition once it has rows there. A new partition makes Postgres read the default
  // partition, so nothing is made while that is large. Waiting for a lock is bounded, because writers queue behind it.
  yield* sql`
    CREATE FUNCTION prepare_audit_months() RETURNS integer LANGUAGE plpgsql SET lock_timeout = '500ms' AS $$
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
        CONTINUE WHEN EXISTS (SELECT FROM audit_partitions WHERE from_id < next AND to_id > first);
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

  // One step of removing what arrived before a time: drops the oldest partition that has nothing later, else deletes up to
  // 5,000 rows of older months from the default partition, else as many corrections. Returns no row when nothing is left.
  yield* sql`
    CREATE FUNCTION prune_audit(older_than timestamptz) RETURNS TABLE (relation text, removed bigint)
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

  // -- Sums

  // Sums of the audit by key and UTC day of admission, written in the transaction of the audit row. A key that moves to
  // another tenant has two rows on that day.
  yield* sql`
    CREATE TABLE ledger (
      key_id uuid NOT NULL,
      day date NOT NULL,
      tenant_id uuid NOT NULL,
      requests bigint NOT NULL CHECK (requests >= 0),
      tokens_in bigint NOT NULL CHECK (tokens_in >= 0),
      tokens_out bigint NOT NULL CHECK (tokens_out >= 0),
      PRIMARY KEY (key_id, day, tenant_id)
    )`
  yield* sql`CREATE INDEX ledger_tenant ON ledger (tenant_id, day)`

  // The same sums by model, for reports. Budgets read the ledger on the request path, so the ledger has no model.
  //
  // Triggers write the table, in the transaction of the audit row or of its correction. The rows of a batch are summed first,
  // so a batch changes each row once. The triggers run after the statement has locked its rows of the ledger, in the order of
  // the primary key, so they add no new way to deadlock.
  yield* sql`
    CREATE TABLE usage_daily (
      key_id uuid NOT NULL,
      day date NOT NULL,
      model text NOT NULL,
      tenant_id uuid NOT NULL,
      requests bigint NOT NULL,
      tokens_in bigint NOT NULL,
      -- part of tokens_in, as far as the model server says
      tokens_cached bigint NOT NULL DEFAULT 0,
      tokens_out bigint NOT NULL,
      -- requests with a status of 400 or more; 499, a client that left, is one
      errors bigint NOT NULL,
      -- requests that the model server loaded the model for, and how long that took
      loads bigint NOT NULL DEFAULT 0,
      load_ms bigint NOT NULL DEFAULT 0,
      PRIMARY KEY (key_id, day, model, tenant_id)
    ) WITH (fillfactor = 70)`
  yield* sql`CREATE INDEX usage_daily_day ON usage_daily (day)`

  // The same sums by the account of an end user, for keys whose users have limits of their own. The budgets of users read it.
  yield* sql`
    CREATE TABLE user_ledger (
      user_account uuid NOT NULL,
      day date NOT NULL,
      -- one of the keys of the account that the user belongs to
      key_id uuid NOT NULL,
      requests bigint NOT NULL,
      tokens_in bigint NOT NULL,
      tokens_out bigint NOT NULL,
      PRIMARY KEY (user_account, day)
    ) WITH (fillfactor = 70)`

  // The same rows as the ledger counts: admitted requests of a key.
  yield* sql`
    CREATE FUNCTION book_usage() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO usage_daily AS u
        (key_id, day, model, tenant_id, requests, tokens_in, tokens_cached, tokens_out, errors, loads, load_ms)
      SELECT w.key_id, (w.admitted_at AT TIME ZONE 'UTC')::date, coalesce(w.model, ''), w.tenant_id, count(*),
        sum(w.tokens_in), coalesce(sum(w.tokens_cached), 0), sum(w.tokens_out), count(*) FILTER (WHERE w.status >= 400),
        count(w.load_ms), coalesce(sum(w.load_ms), 0)
      FROM written w
      WHERE w.admitted_at IS NOT NULL AND w.key_id IS NOT NULL
      GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
      ON CONFLICT (key_id, day, model, tenant_id) DO UPDATE SET
        requests = u.requests + excluded.requests,
        tokens_in = u.tokens_in + excluded.tokens_in,
        tokens_cached = u.tokens_cached + excluded.tokens_cached,
        tokens_out = u.tokens_out + excluded.tokens_out,
        errors = u.errors + excluded.errors,
        loads = u.loads + excluded.loads,
        load_ms = u.load_ms + excluded.load_ms;
      INSERT INTO user_ledger AS u (user_account, day, key_id, requests, tokens_in, tokens_out)
      SELECT w.user_account, (w.admitted_at AT TIME ZONE 'UTC')::date, min(w.key_id::text)::uuid, count(*),
        sum(w.tokens_in), sum(w.tokens_out)
      FROM written w
      WHERE w.admitted_at IS NOT NULL AND w.key_id IS NOT NULL AND w.user_account IS NOT NULL
      GROUP BY 1, 2 ORDER BY 1, 2
      ON CONFLICT (user_account, day) DO UPDATE SET
        requests = u.requests + excluded.requests,
        tokens_in = u.tokens_in + excluded.tokens_in,
        tokens_out = u.tokens_out + excluded.tokens_out;
      RETURN NULL;
    END $$`
  // A correction has the status that the client got.
  yield* sql`
    CREATE FUNCTION book_correction() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO usage_daily AS u (key_id, day, model, tenant_id, requests, tokens_in, tokens_out, errors)
      SELECT a.key_id, (a.admitted_at AT TIME ZONE 'UTC')::date, coalesce(a.model, ''), a.tenant_id, 0,
        sum(w.tokens_in), sum(w.tokens_out), sum((w.status >= 400)::integer - (a.status >= 400)::integer)
      FROM written w JOIN audit_log a ON a.request_id = w.request_id
      WHERE a.admitted_at IS NOT NULL AND a.key_id IS NOT NULL
      GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
      ON CONFLICT (key_id, day, model, tenant_id) DO UPDATE SET
        tokens_in = u.tokens_in + excluded.tokens_in,
        tokens_out = u.tokens_out + excluded.tokens_out,
        errors = u.errors + excluded.errors;
      INSERT INTO user_ledger AS u (user_account, day, key_id, requests, tokens_in, tokens_out)
      SELECT a.user_account, (a.admitted_at AT TIME ZONE 'UTC')::date, min(a.key_id::text)::uuid, 0,
        sum(w.tokens_in), sum(w.tokens_out)
      FROM written w JOIN audit_log a ON a.request_id = w.request_id
      WHERE a.admitted_at IS NOT NULL AND a.key_id IS NOT NULL AND a.user_account IS NOT NULL
      GROUP BY 1, 2 ORDER BY 1, 2
      ON CONFLICT (user_account, day) DO UPDATE SET
        tokens_in = u.tokens_in + excluded.tokens_in,
        tokens_out = u.tokens_out + excluded.tokens_out;
      RETURN NULL;
    END $$`
  yield* sql`
    CREATE TRIGGER audit_log_usage AFTER INSERT ON audit_log
    REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION book_usage()`
  yield* sql`
    CREATE TRIGGER audit_corrections_usage AFTER INSERT ON audit_corrections
    REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION book_correction()`

  // -- Prompts, secrets, processes

  yield* sql`
    CREATE TABLE prompt_log (
      request_id uuid PRIMARY KEY,
      key_id uuid NOT NULL REFERENCES api_keys (id),
      created_at timestamptz NOT NULL DEFAULT now(),
      expires_at timestamptz NOT NULL,
      endpoint text NOT NULL,
      prompt text NOT NULL,
      answer text NOT NULL,
      truncated boolean NOT NULL DEFAULT false
    )`
  yield* sql`CREATE INDEX prompt_log_expires ON prompt_log (expires_at)`
  yield* sql`CREATE INDEX prompt_log_key ON prompt_log (key_id, created_at)`

  // Secrets that all replicas share. The one for 'context' seals the context of an answer, so that any replica can open it.
  // Replacing it and restarting the gateways makes every context invalid.
  yield* sql`
    CREATE TABLE sealing_secrets (
      purpose text PRIMARY KEY,
      secret bytea NOT NULL CHECK (octet_length(secret) = 32)
    )`
  yield* sql`
    INSERT INTO sealing_secrets (purpose, secret)
    VALUES ('context', decode(${randomBytes(32).toString("hex")}, 'hex'))`

  // The running processes, for `tollgate status`. Each process writes its own row and deletes it at its end.
  yield* sql`
    CREATE TABLE replicas (
      id uuid PRIMARY KEY,
      host text NOT NULL,
      version text NOT NULL,
      started_at timestamptz NOT NULL DEFAULT now(),
      seen_at timestamptz NOT NULL DEFAULT now(),
      -- gauges by name, as in the metrics; null when a gauge has no finite value
      gauges jsonb NOT NULL
    )`

  // -- Rights

  // These functions run with the rights of the schema's owner, so that the roles of deploy/postgres/roles.sql need no more
  // rights than they have. `pg_temp` comes last, so that a temporary table cannot replace one of ours.
  for (const name of [
    "apply_revocation()",
    "book_usage()",
    "book_correction()",
    "prepare_audit_months()",
    "prune_audit(timestamptz)"
  ]) {
    yield* sql`
      DO $$ BEGIN
        EXECUTE format(
          'ALTER FUNCTION ${sql.literal(name)} SECURITY DEFINER SET search_path = pg_catalog, %I, pg_temp', current_schema());
      END $$`
  }
  // By default everybody may call a function.
  yield* sql`REVOKE ALL ON FUNCTION prune_audit(timestamptz) FROM PUBLIC`

  yield* sql`SELECT prepare_audit_months()`
})
