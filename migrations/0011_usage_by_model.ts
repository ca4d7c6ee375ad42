import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * What each key used of each model on each UTC day. The ledger has no model, and budgets read it on the request path, so it
 * stays as it is and this table is beside it.
 *
 * Triggers write it, in the transaction of the audit row or of its correction. So it is exact, and it has the requests of
 * older versions too, which know nothing of it. The rows of a batch are summed first: a batch changes each row once. The
 * triggers run after the statement has locked its rows of the ledger, in the order of the primary key, so they add no new
 * way to deadlock. The functions run with the rights of the schema's owner, as `apply_revocation` does.
 *
 * Requests from before this migration have no rows here. A report shows them with the model "not recorded": it is what the
 * ledger has more. No CHECK forbids negative figures, because a correction may belong to such a request.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    CREATE TABLE IF NOT EXISTS usage_daily (
      key_id uuid NOT NULL,
      day date NOT NULL,
      model text NOT NULL,
      tenant_id uuid NOT NULL,
      requests bigint NOT NULL,
      tokens_in bigint NOT NULL,
      tokens_out bigint NOT NULL,
      -- requests with a status of 400 or more; 499, a client that left, is one
      errors bigint NOT NULL,
      PRIMARY KEY (key_id, day, model)
    ) WITH (fillfactor = 70)`
  yield* sql`CREATE INDEX IF NOT EXISTS usage_daily_day ON usage_daily (day)`

  // The same rows as the ledger counts: admitted requests of a key.
  yield* sql`
    CREATE OR REPLACE FUNCTION book_usage() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO usage_daily AS u (key_id, day, model, tenant_id, requests, tokens_in, tokens_out, errors)
      SELECT w.key_id, (w.admitted_at AT TIME ZONE 'UTC')::date, coalesce(w.model, ''), w.tenant_id, count(*),
        sum(w.tokens_in), sum(w.tokens_out), count(*) FILTER (WHERE w.status >= 400)
      FROM written w
      WHERE w.admitted_at IS NOT NULL AND w.key_id IS NOT NULL
      GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3
      ON CONFLICT (key_id, day, model) DO UPDATE SET
        requests = u.requests + excluded.requests,
        tokens_in = u.tokens_in + excluded.tokens_in,
        tokens_out = u.tokens_out + excluded.tokens_out,
        errors = u.errors + excluded.errors;
      RETURN NULL;
    END $$`
  // A correction has the status that the client got.
  yield* sql`
    CREATE OR REPLACE FUNCTION book_correction() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO usage_daily AS u (key_id, day, model, tenant_id, requests, tokens_in, tokens_out, errors)
      SELECT a.key_id, (a.admitted_at AT TIME ZONE 'UTC')::date, coalesce(a.model, ''), a.tenant_id, 0,
        sum(w.tokens_in), sum(w.tokens_out), sum((w.status >= 400)::integer - (a.status >= 400)::integer)
      FROM written w JOIN audit_log a ON a.request_id = w.request_id
      WHERE a.admitted_at IS NOT NULL AND a.key_id IS NOT NULL
      GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3
      ON CONFLICT (key_id, day, model) DO UPDATE SET
        tokens_in = u.tokens_in + excluded.tokens_in,
        tokens_out = u.tokens_out + excluded.tokens_out,
        errors = u.errors + excluded.errors;
      RETURN NULL;
    END $$`
  for (const name of ["book_usage", "book_correction"]) {
    yield* sql`
      DO $$ BEGIN
        EXECUTE format(
          'ALTER FUNCTION ${sql.literal(name)}() SECURITY DEFINER SET search_path = pg_catalog, %I, pg_temp',
          current_schema());
      END $$`
  }
  // In the order in which a gateway locks the tables.
  yield* sql`
    CREATE OR REPLACE TRIGGER audit_corrections_usage AFTER INSERT ON audit_corrections
    REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION book_correction()`
  yield* sql`
    CREATE OR REPLACE TRIGGER audit_log_usage AFTER INSERT ON audit_log
    REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION book_usage()`
})
