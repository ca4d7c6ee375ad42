import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Tenants, keys, the revocations outbox, intents, the audit log, the ledger and the prompt log. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  yield* sql`
    CREATE TABLE tenants (
      id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
      name text NOT NULL UNIQUE CHECK (name ~ '^[^[:cntrl:]]{1,64}$' AND name = btrim(name)),
      rpm integer NOT NULL CHECK (rpm > 0),
      tpm integer NOT NULL CHECK (tpm > 0),
      concurrent integer NOT NULL CHECK (concurrent > 0),
      allow_all_models boolean NOT NULL DEFAULT false,
      allowed_models text[] NOT NULL DEFAULT '{}' CHECK (array_position(allowed_models, NULL) IS NULL),
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
      rpm integer CHECK (rpm > 0),
      tpm integer CHECK (tpm > 0),
      concurrent integer CHECK (concurrent > 0),
      budget_daily bigint CHECK (budget_daily BETWEEN 0 AND 9007199254740991),
      budget_monthly bigint CHECK (budget_monthly BETWEEN 0 AND 9007199254740991),
      budget_total bigint CHECK (budget_total BETWEEN 0 AND 9007199254740991),
      prompt_log boolean NOT NULL DEFAULT false,
      prompt_log_days integer CHECK (prompt_log_days BETWEEN 1 AND 3650)
    )`
  yield* sql`CREATE INDEX api_keys_tenant ON api_keys (tenant_id)`

  yield* sql`
    CREATE TABLE revocations (
      id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      key_prefix text NOT NULL,
      created_at timestamptz NOT NULL DEFAULT now()
    )`
  yield* sql`CREATE INDEX revocations_key_prefix ON revocations (key_prefix)`

  // A row in `revocations` does the whole revocation, whichever program writes it.
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

  // A revoked key cannot become active again.
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

  // One row for each open request that may cost tokens. The table stays small, unlike the log.
  yield* sql`
    CREATE TABLE intents (
      request_id uuid PRIMARY KEY,
      tenant_id uuid NOT NULL,
      key_id uuid NOT NULL,
      key_prefix text NOT NULL,
      model text NOT NULL,
      endpoint text NOT NULL,
      method text NOT NULL,
      streamed boolean NOT NULL,
      client_ip text NOT NULL,
      client_request_id text,
      arrived_at timestamptz NOT NULL,
      admitted_at timestamptz NOT NULL,
      held bigint NOT NULL CHECK (held >= 0),
      tokens_in bigint NOT NULL CHECK (tokens_in >= 0),
      tokens_out bigint NOT NULL DEFAULT 0 CHECK (tokens_out >= 0),
      reservation jsonb NOT NULL,
      lease_until timestamptz NOT NULL
    )`
  yield* sql`CREATE INDEX intents_lease ON intents (lease_until)`
  yield* sql`CREATE INDEX intents_key ON intents (key_id)`

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
      streamed boolean NOT NULL,
      tokens_in bigint NOT NULL CHECK (tokens_in >= 0),
      tokens_out bigint NOT NULL CHECK (tokens_out >= 0),
      usage_source text CHECK (usage_source IN ('backend', 'counted', 'estimated')),
      status integer NOT NULL CHECK (status BETWEEN 100 AND 599),
      error_type text,
      latency_ms integer NOT NULL CHECK (latency_ms >= 0),
      client_ip text NOT NULL,
      client_request_id text CHECK (char_length(client_request_id) <= 64),
      completed_at timestamptz NOT NULL DEFAULT now()
    )`
  yield* sql`CREATE INDEX audit_log_arrived ON audit_log (arrived_at)`
  yield* sql`CREATE INDEX audit_log_tenant ON audit_log (tenant_id, arrived_at)`

  // Sums of the audit by key and UTC day of admission, written in the same transaction as the audit row.
  yield* sql`
    CREATE TABLE ledger (
      key_id uuid NOT NULL,
      tenant_id uuid NOT NULL,
      day date NOT NULL,
      requests bigint NOT NULL CHECK (requests >= 0),
      tokens_in bigint NOT NULL CHECK (tokens_in >= 0),
      tokens_out bigint NOT NULL CHECK (tokens_out >= 0),
      PRIMARY KEY (key_id, day)
    )`
  yield* sql`CREATE INDEX ledger_tenant ON ledger (tenant_id, day)`

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
})
