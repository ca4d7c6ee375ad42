/**
 * Corrects requests that another replica has closed as aborted, because their process was paused past its lease or cut off
 * from the database, and that ended after all. The audit row does not change. The difference becomes a row of
 * `audit_corrections` and is added to the ledger in the same statement. Then it is charged to the live counters.
 *
 * The difference may be negative: the row has the estimate of the prompt and the frames of the last heartbeat, and the
 * backend may count fewer, or the request may be refunded. The ledger then goes down. The counters are not lowered here:
 * they are compared with the ledger as soon as the key is idle.
 *
 * Only rows that another replica wrote for a dead process are corrected, and only by the process of the request. A row
 * that is sent twice changes nothing.
 */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Schema } from "effect"
import type { Meter } from "../gates/meter/Meter.ts"
import { outcomes } from "../domain/Outcome.ts"
import type { AuditRow } from "./rows.ts"
import type { SuspectAccounts } from "../gates/limits/SuspectAccounts.ts"

const Correction = Schema.Struct({
  id: Schema.String,
  tenant_id: Schema.String,
  key_id: Schema.String,
  admitted_at: Schema.Finite,
  /** tokens that were added to the ledger */
  tokens: Schema.Finite
})
export type Correction = typeof Correction.Type
const decodeCorrections = Schema.decodeUnknownEffect(Schema.Array(Correction))

/**
 * Corrects those of `rows` that another replica closed, and returns the corrections it made. It locks the ledger's rows in
 * the same order as `closeIntents`.
 */
export const correctAudit = (pg: PgClient.PgClient) => (rows: ReadonlyArray<AuditRow>) =>
  Effect.flatMap(
    pg`
    WITH r AS (
      SELECT * FROM jsonb_to_recordset(${pg.json(rows)}) AS r(request_id uuid, tokens_in bigint, tokens_out bigint,
        usage_source text, status integer, error_type text)
    ), late AS (
      INSERT INTO audit_corrections (request_id, tenant_id, key_id, key_prefix, admitted_at, tokens_in, tokens_out,
        usage_source, status, error_type)
      SELECT a.request_id, a.tenant_id, a.key_id, a.key_prefix, a.admitted_at, r.tokens_in - a.tokens_in,
        r.tokens_out - a.tokens_out, r.usage_source, r.status, r.error_type
      FROM r JOIN audit_log a USING (request_id)
      WHERE a.error_type = ${outcomes.aborted.type} AND a.admitted_at IS NOT NULL AND a.key_id IS NOT NULL AND a.tenant_id IS NOT NULL
      ON CONFLICT (request_id) DO NOTHING
      RETURNING request_id, tenant_id, key_id, admitted_at, tokens_in, tokens_out
    ), sums AS (
      SELECT key_id, (admitted_at AT TIME ZONE 'UTC')::date AS day, sum(tokens_in)::bigint AS tokens_in,
        sum(tokens_out)::bigint AS tokens_out
      FROM late GROUP BY 1, 2
    ), mine AS (
      SELECT l.key_id, l.day FROM ledger l JOIN sums USING (key_id, day) ORDER BY 1, 2 FOR UPDATE OF l
    ), booked AS (
      UPDATE ledger l SET tokens_in = l.tokens_in + sums.tokens_in, tokens_out = l.tokens_out + sums.tokens_out
      FROM sums JOIN mine USING (key_id, day)
      WHERE l.key_id = sums.key_id AND l.day = sums.day
    )
    SELECT request_id::text AS id, tenant_id::text, key_id::text,
      (extract(epoch FROM admitted_at) * 1000)::float8 AS admitted_at, (tokens_in + tokens_out)::float8 AS tokens
    FROM late`,
    decodeCorrections
  )

/**
 * Charges a correction to the live counters. The counters have already settled the request, so the rest is settled under
 * an id of its own, which makes a repetition harmless. If this fails, the comparison with the ledger corrects the counters.
 */
export const chargeCorrection = (
  meter: Meter["Service"],
  suspects: SuspectAccounts["Service"],
  { admitted_at, id, key_id, tenant_id, tokens }: Correction
): Effect.Effect<void> => {
  const account = { group: tenant_id, key: key_id }
  suspects.add(account)
  if (tokens <= 0) return Effect.void
  const claims = { account, limits: { rpm: 0, tpm: 0, concurrent: 0 }, budgets: {} }
  const rest = {
    id: `${id}:late`,
    claims,
    held: 0,
    available: 0,
    admittedAt: admitted_at,
    buckets: {},
    slot: false
  }
  return Effect.matchEffect(meter.settle(rest, tokens), {
    onSuccess: () => Effect.void,
    onFailure: ({ cause }) => Effect.logWarning("late tokens not charged yet", { key_id, tokens }, cause)
  })
}
