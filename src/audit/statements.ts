/** The SQL statements of the audit. Each handles a whole batch of rows in one round trip. */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import type { Statement } from "effect/sql"
import { outcomes } from "../domain/Outcome.ts"
import { type Account, partsOf } from "../domain/Reservation.ts"
import { accountOf } from "../gates/keys/accounts.ts"
import { columnsOf } from "../infra/columns.ts"
import { timeoutDetached } from "../infra/time.ts"
import { AuditRow, IntentRow, ledgerDay, ProgressRow } from "./rows.ts"

const decodeIds = Schema.decodeUnknownEffect(Schema.Array(Schema.Struct({ id: Schema.String })))
const idsOf = Effect.fnUntraced(function* (found: ReadonlyArray<unknown>) {
  return (yield* decodeIds(found)).map(({ id }) => id)
})

const intentColumns = columnsOf(IntentRow)
export const logColumns = columnsOf(AuditRow)
const progressColumns = columnsOf(ProgressRow)

/**
 * Opens intents. An intent that is already open does not change. No intent is opened for a request that has already
 * ended: its client did not wait, and nothing would ever close the intent.
 *
 * The commit does not wait for the disk. The setting holds for this transaction only, so it also works behind a pooler. Only a
 * crash of Postgres itself, or a failover to a standby, can lose an intent (docs/threat-model.md). `renewIntents` finds a lost
 * one.
 */
export const insertIntents = (pg: PgClient.PgClient, leaseS: number) => {
  const { names, sorted, values } = intentColumns
  return (rows: ReadonlyArray<IntentRow>) =>
    Effect.asVoid(pg`
      INSERT INTO intents (${names}, lease_until)
      SELECT ${values}, now() + make_interval(secs => ${leaseS}::float8)
      FROM set_config('synchronous_commit', 'off', true), (${sorted(rows)}) AS r
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
      ${progressColumns.sorted(rows)}
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
 * Writes the rows `r` and ends the intents of their requests. Those that were admitted are added to the ledger. It is one
 * statement, and the primary key of the log makes it happen once: only inserted rows reach the ledger. The ledger is locked in
 * key order, so that replicas that close requests of the same keys do not deadlock. A request whose intent was lost is booked all
 * the same. The join with `ended` makes Postgres delete the intents first.
 */
const write = (pg: PgClient.PgClient, r: Statement.Fragment, found: Statement.Fragment) => {
  const { names, values } = logColumns
  return pg`
      WITH r AS (${r}), ended AS (
        DELETE FROM intents USING r WHERE intents.request_id = r.request_id RETURNING intents.request_id
      ), logged AS (
        INSERT INTO audit_log (${names}) SELECT ${values} FROM r LEFT JOIN ended USING (request_id)
        ON CONFLICT (request_id) DO NOTHING
        RETURNING request_id, tenant_id, key_id, day, admitted_at, tokens_in, tokens_out
      ), booked AS (
        INSERT INTO ledger (key_id, day, tenant_id, requests, tokens_in, tokens_out)
        SELECT key_id, ${pg.literal(ledgerDay("logged"))}, tenant_id, count(*), sum(tokens_in), sum(tokens_out)
        FROM logged
        WHERE key_id IS NOT NULL AND admitted_at IS NOT NULL
        GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
        ON CONFLICT (key_id, day, tenant_id) DO UPDATE SET
          requests = ledger.requests + excluded.requests,
          tokens_in = ledger.tokens_in + excluded.tokens_in,
          tokens_out = ledger.tokens_out + excluded.tokens_out
      )
      SELECT ${found}`
}

/** Writes rows. Returns the ids that were already in the log: sent twice, or closed by another replica (`corrections.ts`). */
export const writeRows = (pg: PgClient.PgClient) => (rows: ReadonlyArray<AuditRow>) =>
  write(
    pg,
    logColumns.sorted(rows),
    pg`request_id::text AS id FROM r WHERE NOT EXISTS (SELECT FROM logged l WHERE l.request_id = r.request_id)`
  ).pipe(Effect.flatMap(idsOf))

/** What the row of a dead request says beside its intent. */
const aborted = {
  usage_source: "counted",
  status: outcomes.aborted.status,
  error_type: outcomes.aborted.type,
  detail: "gateway: its process died",
  repeats: 1
} as const satisfies Partial<AuditRow>

const decodeAccounts = Schema.decodeUnknownEffect(
  Schema.Array(
    Schema.Struct({
      group: Schema.String,
      key: Schema.String,
      user: Schema.NullOr(Schema.String),
      model: Schema.NullOr(Schema.String)
    })
  )
)

/** Whether the lease of an intent ended more than `overS` seconds ago. */
export const isExpired = (pg: PgClient.PgClient, overS: number) =>
  pg`lease_until < now() - make_interval(secs => ${overS}::float8)`

/**
 * Ends a request whose lease has ended: as aborted, with the tokens of its last heartbeat. Returns its account, with its end user and
 * model; undefined when its lease has not ended, or it was ended elsewhere or is being ended.
 */
export const endExpired = (pg: PgClient.PgClient, id: string) =>
  timeoutDetached("10 seconds")(
    write(
      pg,
      pg`SELECT a.* FROM (
          SELECT *, least(2147483647, greatest(0, extract(epoch FROM least(lease_until, now()) - arrived_at) * 1000))::integer AS latency_ms
          FROM intents WHERE request_id = ${id}::text::uuid AND ${isExpired(pg, 0)} FOR UPDATE SKIP LOCKED
        ) i, jsonb_populate_record(NULL::audit_log, to_jsonb(i) || ${pg.json(aborted)}) a`,
      pg`tenant_id::text AS group, user_account::text AS user, model,
        coalesce((SELECT ${accountOf(pg, "k")} FROM api_keys k WHERE k.id = r.key_id), key_id)::text AS key FROM r`
    )
  ).pipe(
    Effect.flatMap(decodeAccounts),
    Effect.map(([found]): Account | undefined => {
      if (found === undefined) return undefined
      const { model, user, ...account } = found
      return { ...account, ...partsOf(user, model) }
    })
  )
