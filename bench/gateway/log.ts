/** A large audit log of requests nobody made, written inside Postgres: 400 days of 1,000 keys of 100 tenants. */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Redacted } from "effect"
import { SqlClient } from "effect/sql"
import type { Stores } from "./contenders.ts"

/** Of the cluster: with the defaults a checkpoint follows the other, and ten million rows take twice their time. */
export const roomy = { shared_buffers: "1GB", max_wal_size: "4GB", checkpoint_timeout: "1h" }

/** As an operator's psql: none of the settings, and none of the deadlines, that the gateway's own client has. */
export const plainly = (stores: Stores) =>
  PgClient.layer({ url: Redacted.make(stores.databaseUrl), maxConnections: 1 })

const keys = 1000

/** Their names are all `filler-…`, so that the keys that really call keep books of their own. */
const makeKeys = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
    INSERT INTO tenants (name, rpm, tpm, concurrent)
    SELECT 'filler-' || n, 60, 100000, 10 FROM generate_series(0, 99) AS n ON CONFLICT DO NOTHING`
  yield* sql`
    INSERT INTO api_keys (tenant_id, name, prefix, hash)
    SELECT t.id, 'filler-' || n, 'tg_' || lpad(n::text, 9, '0'), '$argon2id$none'
    FROM generate_series(0, ${keys - 1}::int) AS n JOIN tenants t ON t.name = 'filler-' || n % 100
    ON CONFLICT DO NOTHING`
  // Without figures three keys are expected where there are a thousand.
  yield* sql`ANALYZE api_keys`
})

/**
 * The log anew, of that many rows. Few keys do most of it, a twentieth are refusals, some of them of nobody; ids and times
 * rise together, as they do in a log.
 */
export const fillLog = Effect.fnUntraced(function* (rows: number) {
  const sql = yield* SqlClient.SqlClient
  yield* makeKeys
  yield* sql`TRUNCATE audit_log`
  yield* sql`DELETE FROM ledger WHERE key_id IN (SELECT id FROM api_keys WHERE name LIKE 'filler-%')`
  yield* sql`
    INSERT INTO audit_log (request_id, arrived_at, admitted_at, tenant_id, key_id, key_prefix, method, endpoint, model,
      streamed, tokens_in, tokens_out, usage_source, status, error_type, latency_ms, client_ip, completed_at)
    SELECT uuidv7(at - now()), at, CASE WHEN admitted THEN at END, k.tenant_id, k.id, k.prefix, 'POST', '/api/chat',
      'model-' || (10 * h * h)::int, h < 0.5, CASE WHEN admitted THEN 7 ELSE 0 END, CASE WHEN admitted THEN 30 ELSE 0 END,
      CASE WHEN admitted THEN 'backend' END, CASE WHEN admitted THEN 200 WHEN k.id IS NULL THEN 401 ELSE 429 END,
      CASE WHEN admitted THEN NULL WHEN k.id IS NULL THEN 'unauthorized' ELSE 'rate_limit_exceeded' END,
      (h * 20000)::int, '192.0.2.' || (h * 200)::int, at + interval '10 seconds'
    FROM (
      SELECT at, h, h < 0.95 AS admitted, floor(${keys}::int * power(random(), 3))::int AS place
      FROM (
        SELECT now() - interval '400 days' * (1 - n / ${rows}::float8) AS at, random() AS h
        FROM generate_series(1, ${rows}::int) AS n
      ) AS drawn
    ) AS g
    LEFT JOIN (SELECT *, right(prefix, 9)::int AS place FROM api_keys WHERE name LIKE 'filler-%') AS k
      ON k.place = g.place AND h < 0.98`
  // Else what follows is planned for the log there was before.
  yield* sql`ANALYZE audit_log`
  // Day by day, as it is written: the days of one key lie far apart.
  yield* sql`
    INSERT INTO ledger (key_id, tenant_id, day, requests, tokens_in, tokens_out)
    SELECT key_id, tenant_id, (admitted_at AT TIME ZONE 'UTC')::date, count(*), sum(tokens_in), sum(tokens_out)
    FROM audit_log WHERE admitted_at IS NOT NULL
    GROUP BY 1, 2, 3 ORDER BY 3`
  // Else autovacuum and a checkpoint would come in the middle of what is measured.
  yield* sql`VACUUM (ANALYZE) audit_log, ledger`
  yield* sql`CHECKPOINT`
})
