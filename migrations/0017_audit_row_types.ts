import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * The types of the rows that a gateway sends for `intents` and `audit_log`. Reading an array of such a type costs Postgres a
 * third of what reading a jsonb document costs.
 *
 * A type never changes, because the text of a row has one value for each attribute, in this order: with one more, the rows
 * of an older version would be refused. A new column needs a new type, with the number of its migration in the name.
 */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    DO $$ BEGIN
      IF to_regtype('intent_row_17') IS NOT NULL THEN RETURN; END IF;
      CREATE TYPE intent_row_17 AS (request_id uuid, tenant_id uuid, key_id uuid, key_prefix text, model text,
        endpoint text, method text, streamed boolean, client_ip text, client_request_id text, end_user text, alias text,
        arrived_at timestamptz, admitted_at timestamptz, held bigint, tokens_in bigint, reservation jsonb);
      CREATE TYPE audit_row_17 AS (request_id uuid, arrived_at timestamptz, tenant_id uuid, key_id uuid, key_prefix text,
        method text, endpoint text, model text, streamed boolean, tokens_in bigint, tokens_out bigint, usage_source text,
        status integer, error_type text, latency_ms integer, client_ip text, client_request_id text, queued_ms integer,
        end_user text, alias text, truncated boolean, repeats integer, admitted_at timestamptz);
    END $$`
})
