/**
 * Corrects audit rows that differ from what the client saw. A row never changes: the difference becomes a row of
 * `audit_corrections` and is added to the ledger in the same statement. Then the difference is charged to the live counters.
 *
 * Another replica may have closed the request as aborted, because its process was paused past its lease or cut off from the
 * database. Or the row took too long to write, so the client got a 503, and the database had stored the row as it was.
 */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import type { Meter } from "../gates/meter/Meter.ts"
import { outcomes } from "../domain/Outcome.ts"
import { claimsWithoutLimits, partsOf } from "../domain/Reservation.ts"
import { accountOf } from "../gates/keys/accounts.ts"
import { type AuditRow, ledgerDay } from "./rows.ts"
import { logColumns } from "./statements.ts"
import type { Reconciler } from "../gates/limits/Reconciler.ts"

const Correction = Schema.Struct({
  id: Schema.String,
  tenant_id: Schema.String,
  key_id: Schema.String,
  /** whose counters are charged */
  account: Schema.String,
  /** the end user and the model whose counters are charged too */
  user_account: Schema.NullOr(Schema.String),
  model: Schema.NullOr(Schema.String),
  admitted_at: Schema.Finite,
  /** tokens that were added to the ledger */
  tokens: Schema.Finite,
  /** whether another replica had closed the request */
  was_aborted: Schema.Boolean
})
export type Correction = typeof Correction.Type
const decodeCorrections = Schema.decodeUnknownEffect(Schema.Array(Correction))

/**
 * Corrects the stored rows of the requests of `rows`, and returns the corrections it made. It locks the ledger's rows in
 * the same order as `writeRows`. The row of a request that was not admitted has no time of admission; the correction
 * then has its time of arrival. Only the process of a request corrects its row, and at most once.
 *
 * The difference may be negative: the row has the estimate of the prompt and the frames of the last heartbeat, and the
 * backend may count fewer, or the request may be refunded. The ledger then goes down. The counters are not lowered here:
 * they are compared with the ledger as soon as the key is idle.
 */
export const correctAudit = (pg: PgClient.PgClient) => (rows: ReadonlyArray<AuditRow>) =>
  Effect.flatMap(
    pg`
    WITH r AS (
      ${logColumns.sorted(rows)}
    ), late AS (
      INSERT INTO audit_corrections (request_id, tenant_id, key_id, key_prefix, day, admitted_at, tokens_in, tokens_out,
        usage_source, status, error_type)
      SELECT a.request_id, a.tenant_id, a.key_id, a.key_prefix, a.day, coalesce(a.admitted_at, a.arrived_at),
        r.tokens_in - a.tokens_in, r.tokens_out - a.tokens_out, r.usage_source, r.status, r.error_type
      FROM r JOIN audit_log a USING (request_id)
      WHERE a.key_id IS NOT NULL AND a.tenant_id IS NOT NULL
        AND (a.error_type = ${outcomes.aborted.type} OR (r.error_type = ${outcomes.unavailable.type}
          AND a.error_type IS DISTINCT FROM r.error_type AND (a.tokens_in, a.tokens_out) = (r.tokens_in, r.tokens_out)))
      ON CONFLICT (request_id) DO NOTHING
      RETURNING request_id, tenant_id, key_id, day, admitted_at, tokens_in, tokens_out
    ), sums AS (
      SELECT key_id, ${pg.literal(ledgerDay("late"))} AS day, tenant_id, sum(tokens_in)::bigint AS tokens_in,
        sum(tokens_out)::bigint AS tokens_out
      FROM late GROUP BY 1, 2, 3
    ), mine AS (
      SELECT l.key_id, l.day, l.tenant_id FROM ledger l JOIN sums USING (key_id, day, tenant_id)
      ORDER BY 1, 2, 3 FOR UPDATE OF l
    ), booked AS (
      UPDATE ledger l SET tokens_in = l.tokens_in + sums.tokens_in, tokens_out = l.tokens_out + sums.tokens_out
      FROM sums JOIN mine USING (key_id, day, tenant_id)
      WHERE l.key_id = sums.key_id AND l.day = sums.day AND l.tenant_id = sums.tenant_id
    )
    SELECT request_id::text AS id, late.tenant_id::text, late.key_id::text,
      coalesce((SELECT ${accountOf(pg, "k")} FROM api_keys k WHERE k.id = late.key_id), late.key_id)::text AS account,
      a.user_account::text, a.model,
      (extract(epoch FROM late.admitted_at) * 1000)::float8 AS admitted_at,
      (late.tokens_in + late.tokens_out)::float8 AS tokens,
      coalesce(a.error_type = ${outcomes.aborted.type}, false) AS was_aborted
    FROM late JOIN audit_log a USING (request_id)`,
    decodeCorrections
  )

/**
 * Charges a correction to the live counters. The counters have already settled the request, so the rest is settled under
 * an id of its own, which makes a repetition harmless. If this fails, the comparison with the ledger corrects the counters.
 */
export const chargeCorrection = Effect.fnUntraced(function* (
  meter: Meter["Service"],
  reconciler: Reconciler["Service"],
  { account: key, admitted_at, id, key_id, model, tenant_id, tokens, user_account }: Correction
) {
  if (tokens === 0) return
  const [account, parts] = [{ group: tenant_id, key }, partsOf(user_account, model)]
  yield* reconciler.compareSoon({ ...account, ...parts })
  if (tokens < 0) return
  const rest = {
    id: `${id}:late`,
    claims: claimsWithoutLimits(account, parts),
    held: 0,
    available: 0,
    admittedAt: admitted_at,
    slot: false
  }
  yield* Effect.catch(meter.settle(rest, tokens), ({ cause }) =>
    Effect.logWarning("late tokens not charged yet", { key_id, tokens }, cause)
  )
})
