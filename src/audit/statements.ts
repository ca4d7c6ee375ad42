/**
 * The SQL statements of the audit. Each handles a whole batch of rows in one round trip. A batch is one jsonb document.
 */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import type { AuditRow, CompletionRow, IntentRow, ProgressRow } from "./rows.ts"

const decodeIds = Schema.decodeUnknownEffect(Schema.Array(Schema.Struct({ id: Schema.String })))
const idsOf = Effect.fnUntraced(function* (found: ReadonlyArray<unknown>) {
  return (yield* decodeIds(found)).map(({ id }) => id)
})

/** The columns that a batch of rows fills, in SQL. The compiler asks for each column of a row. */
const columnsOf = <Row>(types: Readonly<Record<keyof Row & string, string>>) => {
  const columns = Object.entries<string>(types)
  const names = columns.map(([name]) => name)
  const typed = columns.map(([name, type]) => `${name} ${type}`).join(", ")
  return (pg: PgClient.PgClient) => ({
    names: pg.literal(names.join(", ")),
    values: pg.literal(names.map((name) => `r.${name}`).join(", ")),
    /** the rows in the order of their ids: two batches with the same requests lock them in the same order */
    sorted: (rows: ReadonlyArray<Row>) =>
      pg`(SELECT * FROM jsonb_to_recordset(${pg.json(rows)}) AS r(${pg.literal(typed)}) ORDER BY request_id)`
  })
}

const intentColumns = columnsOf<IntentRow>({
  request_id: "uuid",
  tenant_id: "uuid",
  key_id: "uuid",
  key_prefix: "text",
  model: "text",
  alias: "text",
  endpoint: "text",
  method: "text",
  streamed: "boolean",
  client_ip: "text",
  client_request_id: "text",
  end_user: "text",
  user_account: "uuid",
  arrived_at: "timestamptz",
  admitted_at: "timestamptz",
  held: "bigint",
  tokens_in: "bigint"
})

const logColumns = columnsOf<AuditRow>({
  request_id: "uuid",
  arrived_at: "timestamptz",
  admitted_at: "timestamptz",
  tenant_id: "uuid",
  key_id: "uuid",
  key_prefix: "text",
  method: "text",
  endpoint: "text",
  model: "text",
  alias: "text",
  streamed: "boolean",
  tokens_in: "bigint",
  tokens_cached: "bigint",
  tokens_out: "bigint",
  usage_source: "text",
  status: "integer",
  error_type: "text",
  detail: "text",
  latency_ms: "integer",
  queued_ms: "integer",
  load_ms: "integer",
  truncated: "boolean",
  client_ip: "text",
  client_request_id: "text",
  end_user: "text",
  user_account: "uuid",
  repeats: "integer"
})

/**
 * Opens intents. An intent that is already open does not change. No intent is opened for a request that has already
 * ended: its client did not wait, and nothing would ever close the intent.
 *
 * The commit does not wait for the disk. The setting holds for this transaction only, so it also works behind a pooler. Only a
 * crash of Postgres itself, or a failover to a standby, can lose an intent (docs/threat-model.md). `renewIntents` finds a lost
 * one.
 */
export const insertIntents = (pg: PgClient.PgClient, leaseS: number) => {
  const { names, sorted, values } = intentColumns(pg)
  return (rows: ReadonlyArray<IntentRow>) =>
    Effect.asVoid(pg`
      INSERT INTO intents (${names}, lease_until)
      SELECT ${values}, now() + make_interval(secs => ${leaseS}::float8)
      FROM set_config('synchronous_commit', 'off', true), ${sorted(rows)} AS r
      WHERE NOT EXISTS (SELECT FROM audit_log a WHERE a.request_id = r.request_id)
      ON CONFLICT (request_id) DO NOTHING`)
}

/**
 * Renews the leases of open intents and stores what they have used. A closed intent stays closed. It skips locked rows:
 * a locked intent is being closed, and waiting in another lock order than the closer would deadlock.
 *
 * Returns the ids of requests that have neither an intent nor a row in the log: a crash of Postgres lost their intents.
 */
export const renewIntents = (pg: PgClient.PgClient, leaseS: number) => (rows: ReadonlyArray<ProgressRow>) =>
  pg`
    WITH r AS (
      SELECT * FROM jsonb_to_recordset(${pg.json(rows)}) AS r(request_id uuid, held bigint, tokens_in bigint,
        tokens_out bigint)
    ), mine AS (
      SELECT i.request_id FROM intents AS i JOIN r USING (request_id)
      ORDER BY i.request_id FOR UPDATE OF i SKIP LOCKED
    ), renewed AS (
      UPDATE intents AS i SET
        lease_until = now() + make_interval(secs => ${leaseS}),
        held = greatest(i.held, r.held),
        tokens_in = greatest(i.tokens_in, r.tokens_in),
        tokens_out = greatest(i.tokens_out, r.tokens_out)
      FROM r JOIN mine USING (request_id)
      WHERE i.request_id = r.request_id
    )
    SELECT r.request_id::text AS id FROM r
    WHERE NOT EXISTS (SELECT FROM intents i WHERE i.request_id = r.request_id)
      AND NOT EXISTS (SELECT FROM audit_log a WHERE a.request_id = r.request_id)`.pipe(Effect.flatMap(idsOf))

/**
 * Closes intents: writes their audit rows and ledger entries and deletes the intents, in one statement. The primary key of
 * the log makes it happen once: only inserted rows reach the ledger. The ledger is locked in key order, so that replicas
 * that close requests of the same keys do not deadlock. A request whose intent was lost is booked all the same. The join with
 * `ended` makes Postgres delete the intents first: crash recovery locks them first too.
 *
 * Returns the ids that were already in the log: sent twice, or closed by another replica (`corrections.ts`).
 */
export const closeIntents = (pg: PgClient.PgClient) => {
  const { names, sorted, values } = logColumns(pg)
  return (rows: ReadonlyArray<CompletionRow>) =>
    pg`
      WITH r AS ${sorted(rows)}, ended AS (
        DELETE FROM intents USING r WHERE intents.request_id = r.request_id RETURNING intents.request_id
      ), logged AS (
        INSERT INTO audit_log (${names}) SELECT ${values} FROM r LEFT JOIN ended USING (request_id)
        ON CONFLICT (request_id) DO NOTHING
        RETURNING request_id, tenant_id, key_id, admitted_at, tokens_in, tokens_out
      ), booked AS (
        INSERT INTO ledger (key_id, day, tenant_id, requests, tokens_in, tokens_out)
        SELECT key_id, (admitted_at AT TIME ZONE 'UTC')::date, tenant_id, count(*), sum(tokens_in), sum(tokens_out)
        FROM logged
        WHERE key_id IS NOT NULL
        GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
        ON CONFLICT (key_id, day, tenant_id) DO UPDATE SET
          requests = ledger.requests + excluded.requests,
          tokens_in = ledger.tokens_in + excluded.tokens_in,
          tokens_out = ledger.tokens_out + excluded.tokens_out
      )
      SELECT request_id::text AS id FROM r
      WHERE NOT EXISTS (SELECT FROM logged l WHERE l.request_id = r.request_id)`.pipe(Effect.flatMap(idsOf))
}

/**
 * Writes rows of requests that were not admitted, without ledger entries. It also deletes an intent of the request that
 * was written after the request had stopped waiting for it. Returns the ids that were already in the log, as
 * `closeIntents` does.
 */
export const insertAudit = (pg: PgClient.PgClient) => {
  const { names, sorted, values } = logColumns(pg)
  return (rows: ReadonlyArray<AuditRow>) =>
    pg`
      WITH r AS ${sorted(rows)}, ended AS (
        DELETE FROM intents USING r WHERE intents.request_id = r.request_id RETURNING intents.request_id
      ), logged AS (
        INSERT INTO audit_log (${names}) SELECT ${values} FROM r LEFT JOIN ended USING (request_id)
        ON CONFLICT (request_id) DO NOTHING
        RETURNING request_id
      )
      SELECT request_id::text AS id FROM r
      WHERE NOT EXISTS (SELECT FROM logged l WHERE l.request_id = r.request_id)`.pipe(Effect.flatMap(idsOf))
}
