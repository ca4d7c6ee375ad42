/**
 * The SQL statements of the audit. Each handles a whole batch of rows in one round trip.
 *
 * A batch of intents or audit rows is one text: an array of a composite type (`composite.ts`). Reading it costs Postgres
 * a third of what a jsonb document costs. The sub-select around the parameter hides it from the planner: with a visible array
 * Postgres would plan the statement each time, which takes longer than running it.
 *
 * The texts of the statements are made once. A template would build them at each call, and keep each call's parameters
 * in a WeakMap.
 */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import { arrayOf, type Kind } from "./composite.ts"
import type { AuditRow, IntentRow, ProgressRow } from "./rows.ts"

const decodeIds = Schema.decodeUnknownEffect(Schema.Array(Schema.Struct({ id: Schema.String })))
const noIds: ReadonlyArray<string> = []
const idsOf = <E, R>(rows: Effect.Effect<ReadonlyArray<unknown>, E, R>) =>
  Effect.flatMap(rows, (found) =>
    found.length === 0
      ? Effect.succeed(noIds)
      : Effect.map(decodeIds(found), (rows) => rows.map(({ id }) => id))
  )

/** Without line ends and indents: driver and Postgres copy the text at each call. */
const oneLine = (text: string): string => text.trim().replaceAll(/\s+/g, " ")

/** The attributes of `intent_row_17`, in its order. */
const intentColumns = [
  ["request_id", "bare"],
  ["tenant_id", "bare"],
  ["key_id", "bare"],
  ["key_prefix", "text"],
  ["model", "text"],
  ["endpoint", "text"],
  ["method", "text"],
  ["streamed", "bare"],
  ["client_ip", "text"],
  ["client_request_id", "text"],
  ["end_user", "text"],
  ["alias", "text"],
  ["arrived_at", "bare"],
  ["admitted_at", "bare"],
  ["held", "bare"],
  ["tokens_in", "bare"],
  ["reservation", "json"]
] as const satisfies ReadonlyArray<readonly [keyof IntentRow, Kind]>
const intentsText = arrayOf<IntentRow>(intentColumns)

/**
 * Opens intents. An intent that is already open does not change. No intent is opened for a request that has already
 * ended: its client did not wait, and nothing would ever close the intent.
 *
 * The commit does not wait for the disk. The setting holds for this transaction only, so it also works behind a pooler.
 * Only a crash of Postgres itself, or a failover to a standby, can lose an intent (docs/threat-model.md). `renewIntents` finds a lost one.
 */
export const insertIntents = (pg: PgClient.PgClient, leaseS: number) => {
  const text = oneLine(`
    INSERT INTO intents (${intentColumns.map(([column]) => column).join(", ")}, lease_until)
    SELECT r.*, now() + make_interval(secs => ${leaseS})
    FROM set_config('synchronous_commit', 'off', true), unnest((SELECT $1::intent_row_17[])) AS r
    WHERE NOT EXISTS (SELECT FROM audit_log a WHERE a.request_id = r.request_id)
    ON CONFLICT (request_id) DO NOTHING`)
  return (rows: ReadonlyArray<IntentRow>) => Effect.asVoid(pg.unsafe(text, [intentsText(rows)]))
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
      AND NOT EXISTS (SELECT FROM audit_log a WHERE a.request_id = r.request_id)`.pipe(idsOf)

/** The attributes of `audit_row_17`, in its order: the columns of the log, and the time of admission. */
const logColumns = [
  ["request_id", "bare"],
  ["arrived_at", "bare"],
  ["tenant_id", "bare"],
  ["key_id", "bare"],
  ["key_prefix", "text"],
  ["method", "text"],
  ["endpoint", "text"],
  ["model", "text"],
  ["streamed", "bare"],
  ["tokens_in", "bare"],
  ["tokens_out", "bare"],
  ["usage_source", "text"],
  ["status", "bare"],
  ["error_type", "text"],
  ["latency_ms", "bare"],
  ["client_ip", "text"],
  ["client_request_id", "text"],
  ["queued_ms", "bare"],
  ["end_user", "text"],
  ["alias", "text"],
  ["truncated", "bare"],
  ["repeats", "bare"]
] as const satisfies ReadonlyArray<readonly [keyof AuditRow, Kind]>
const columns = logColumns.map(([column]) => column).join(", ")
const values = logColumns.map(([column]) => `r.${column}`).join(", ")
const rowsText = arrayOf<AuditRow>([...logColumns, ["admitted_at", "bare"]])
const sent = "SELECT * FROM unnest((SELECT $1::audit_row_17[]))"

/**
 * Closes intents: writes their audit rows and ledger entries and deletes the intents, in one statement. The primary key of
 * the log makes it happen once: only inserted rows reach the ledger. The ledger is locked in key order, so that replicas
 * that close requests of the same keys do not deadlock. A request whose intent was lost is booked all the same. The
 * completion's time of admission comes before the intent's: a prepared intent has only the expected time.
 *
 * Returns the ids that were already in the log: sent twice, or closed by another replica (`corrections.ts`).
 */
export const closeIntents = (pg: PgClient.PgClient) => (rows: ReadonlyArray<AuditRow>) =>
  idsOf(pg.unsafe(closeText, [rowsText(rows)]))

const closeText = oneLine(`
    WITH r AS (${sent}), ended AS (
      DELETE FROM intents USING r WHERE intents.request_id = r.request_id
      RETURNING intents.request_id, intents.admitted_at
    ), logged AS (
      INSERT INTO audit_log (${columns}, admitted_at)
      SELECT ${values}, coalesce(r.admitted_at, ended.admitted_at, r.arrived_at)
      FROM r LEFT JOIN ended ON ended.request_id = r.request_id
      ON CONFLICT (request_id) DO NOTHING
      RETURNING request_id, tenant_id, key_id, admitted_at, tokens_in, tokens_out
    ), booked AS (
      INSERT INTO ledger (key_id, tenant_id, day, requests, tokens_in, tokens_out)
      SELECT key_id, tenant_id, (admitted_at AT TIME ZONE 'UTC')::date, count(*), sum(tokens_in), sum(tokens_out)
      FROM logged
      WHERE key_id IS NOT NULL
      GROUP BY 1, 2, 3 ORDER BY 1, 3
      ON CONFLICT (key_id, day) DO UPDATE SET
        requests = ledger.requests + excluded.requests,
        tokens_in = ledger.tokens_in + excluded.tokens_in,
        tokens_out = ledger.tokens_out + excluded.tokens_out
    )
    SELECT request_id::text AS id FROM r WHERE NOT EXISTS (SELECT FROM logged l WHERE l.request_id = r.request_id)`)

/**
 * Writes rows of requests that were not admitted, without ledger entries. It also deletes an intent of the request that
 * was written after the request had stopped waiting for it. Returns the ids that were already in the log, as
 * `closeIntents` does.
 */
export const insertAudit = (pg: PgClient.PgClient) => (rows: ReadonlyArray<AuditRow>) =>
  idsOf(pg.unsafe(insertText, [rowsText(rows)]))

const insertText = oneLine(`
    WITH r AS (${sent}), unwanted AS (
      DELETE FROM intents USING r WHERE intents.request_id = r.request_id
    ), logged AS (
      INSERT INTO audit_log (${columns})
      SELECT ${values} FROM r
      ON CONFLICT (request_id) DO NOTHING
      RETURNING request_id
    )
    SELECT request_id::text AS id FROM r WHERE NOT EXISTS (SELECT FROM logged l WHERE l.request_id = r.request_id)`)
