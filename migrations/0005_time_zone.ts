import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Days of a time zone in the books, budgets of a week, and extra budgets. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  // One row: the zone in which the gateways count days.
  yield* sql`CREATE TABLE time_zone (zone text NOT NULL)`
  yield* sql`INSERT INTO time_zone VALUES ('UTC')`

  // The day to which a request counts, by the zone of the gateway that admitted it. Version 1.0.0 counts UTC days and writes none.
  yield* sql`ALTER TABLE intents ADD COLUMN day date`
  yield* sql`ALTER TABLE audit_log ADD COLUMN day date`
  yield* sql`ALTER TABLE audit_corrections ADD COLUMN day date`

  for (const table of ["tenants", "api_keys"]) {
    yield* sql`
      ALTER TABLE ${sql.literal(table)}
        ADD COLUMN budget_weekly bigint CHECK (budget_weekly BETWEEN 0 AND 9007199254740991),
        -- tokens, what is used in all when they are used (upTo), their end (until)
        ADD COLUMN extra_budget jsonb CHECK (jsonb_typeof(extra_budget) = 'object')`
  }
  yield* sql`
    ALTER TABLE api_keys ADD COLUMN each_user_weekly bigint CHECK (each_user_weekly BETWEEN 0 AND 9007199254740991)`

  // As in 0001_schema, but for the day.
  yield* sql`
    CREATE OR REPLACE FUNCTION book_usage() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO usage_daily AS u
        (key_id, day, model, tenant_id, requests, tokens_in, tokens_cached, tokens_out, errors, loads, load_ms)
      SELECT w.key_id, coalesce(w.day, (w.admitted_at AT TIME ZONE 'UTC')::date), coalesce(w.model, ''), w.tenant_id, count(*),
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
      SELECT w.user_account, coalesce(w.day, (w.admitted_at AT TIME ZONE 'UTC')::date), min(w.key_id::text)::uuid, count(*),
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
  yield* sql`
    CREATE OR REPLACE FUNCTION book_correction() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO usage_daily AS u (key_id, day, model, tenant_id, requests, tokens_in, tokens_out, errors)
      SELECT a.key_id, coalesce(a.day, (a.admitted_at AT TIME ZONE 'UTC')::date), coalesce(a.model, ''), a.tenant_id, 0,
        sum(w.tokens_in), sum(w.tokens_out), sum((w.status >= 400)::integer - (a.status >= 400)::integer)
      FROM written w JOIN audit_log a ON a.request_id = w.request_id
      WHERE a.admitted_at IS NOT NULL AND a.key_id IS NOT NULL
      GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
      ON CONFLICT (key_id, day, model, tenant_id) DO UPDATE SET
        tokens_in = u.tokens_in + excluded.tokens_in,
        tokens_out = u.tokens_out + excluded.tokens_out,
        errors = u.errors + excluded.errors;
      INSERT INTO user_ledger AS u (user_account, day, key_id, requests, tokens_in, tokens_out)
      SELECT a.user_account, coalesce(a.day, (a.admitted_at AT TIME ZONE 'UTC')::date), min(a.key_id::text)::uuid, 0,
        sum(w.tokens_in), sum(w.tokens_out)
      FROM written w JOIN audit_log a ON a.request_id = w.request_id
      WHERE a.admitted_at IS NOT NULL AND a.key_id IS NOT NULL AND a.user_account IS NOT NULL
      GROUP BY 1, 2 ORDER BY 1, 2
      ON CONFLICT (user_account, day) DO UPDATE SET
        tokens_in = u.tokens_in + excluded.tokens_in,
        tokens_out = u.tokens_out + excluded.tokens_out;
      RETURN NULL;
    END $$`
  // Replacing a function takes these from it.
  for (const name of ["book_usage()", "book_correction()"]) {
    yield* sql`
      DO $$ BEGIN
        EXECUTE format(
          'ALTER FUNCTION ${sql.literal(name)} SECURITY DEFINER SET search_path = pg_catalog, %I, pg_temp', current_schema());
      END $$`
  }
})
