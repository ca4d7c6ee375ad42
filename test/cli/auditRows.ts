/** Rows of the audit, as gateways write them. */
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { sql } from "../support/sql.ts"

interface Some {
  readonly count?: number
  readonly status?: number
  readonly at?: string
  readonly repeats?: number
  /** a refusal is not */
  readonly admitted?: boolean
  readonly clientRequestId?: string
  /** default: bad_gateway for a status of 400 or more */
  readonly errorType?: string
  readonly endUser?: string
}

/** Rows of the log; row number n (from 1) arrived n seconds ago, or at `at`, which is SQL and may use `n`. */
export const insert = Effect.fnUntraced(function* (prefix: string, some: Some = {}) {
  const client = yield* SqlClient.SqlClient
  return yield* client<{ readonly id: string }>`
    INSERT INTO audit_log (request_id, arrived_at, admitted_at, tenant_id, key_id, key_prefix, method, endpoint, model, streamed,
      tokens_in, tokens_out, status, error_type, latency_ms, client_ip, client_request_id, repeats, end_user)
    SELECT (left(first_request_id(at)::text, 14) || '7000-8000' || right(gen_random_uuid()::text, 13))::uuid, at,
      CASE WHEN ${some.admitted ?? true}::boolean THEN at END, k.tenant_id,
      k.id, k.prefix, 'POST', '/api/chat', 'm:1', true, 1, 2, ${some.status ?? 200},
      CASE WHEN ${some.status ?? 200}::int >= 400 THEN ${some.errorType ?? "bad_gateway"}::text END, 5, '::1', ${some.clientRequestId ?? null},
      ${some.repeats ?? 1}, ${some.endUser ?? null}::text
    FROM api_keys k, LATERAL (
      SELECT n, ${client.literal(some.at ?? "clock_timestamp() - n * interval '1 second'")} AS at FROM generate_series(1, ${some.count ?? 1}::int) n) s
    WHERE k.prefix = ${prefix}
    RETURNING request_id::text AS id`
})

/** A request of the key that runs. */
export const open = (prefix: string, endUser: string | null = null) => sql<{ readonly id: string }>`
  INSERT INTO intents (request_id, tenant_id, key_id, key_prefix, model, endpoint, method, streamed, client_ip, end_user,
    arrived_at, admitted_at, held, tokens_in, lease_until)
  SELECT gen_random_uuid(), tenant_id, id, prefix, 'm:1', '/api/chat', 'POST', false, '::1', ${endUser}::text, now(), now(), 7, 5,
    now()
  FROM api_keys WHERE prefix = ${prefix} RETURNING request_id::text AS id`
