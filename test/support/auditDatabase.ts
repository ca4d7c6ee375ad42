/** The audit's tables, read as a test asks for them. */
import type { Caller } from "../../src/domain/Caller.ts"
import { Effect } from "effect"
import { sql } from "./sql.ts"

export interface LedgerDay {
  readonly day: string
  readonly requests: number
  readonly tokensIn: number
  readonly tokensOut: number
}

const plain = Effect.map((rows: ReadonlyArray<LedgerDay>) => rows.map((row): LedgerDay => ({ ...row })))

export const ledgerOf = (keyId: string) =>
  sql<LedgerDay>`
      SELECT day::text, requests::float8, tokens_in::float8 AS "tokensIn", tokens_out::float8 AS "tokensOut"
      FROM ledger WHERE key_id = ${keyId}::text::uuid ORDER BY day`.pipe(plain)

/** What the ledger should say, from the log alone. */
export const auditSumsOf = (keyId: string) =>
  sql<LedgerDay>`
      SELECT (a.admitted_at AT TIME ZONE 'UTC')::date::text AS day, count(*)::float8 AS requests,
        sum(a.tokens_in + coalesce(c.tokens_in, 0))::float8 AS "tokensIn",
        sum(a.tokens_out + coalesce(c.tokens_out, 0))::float8 AS "tokensOut"
      FROM audit_log a LEFT JOIN audit_corrections c USING (request_id)
      WHERE a.key_id = ${keyId}::text::uuid AND a.admitted_at IS NOT NULL GROUP BY 1 ORDER BY 1`.pipe(plain)

/** A row of the log, as suites look at it. */
export interface SeenRow {
  readonly status: number
  readonly tokens_in: number
  readonly tokens_out: number
  readonly model: string | null
  readonly endpoint: string
  readonly client_request_id: string | null
  readonly error_type: string | null
  readonly key_id: string | null
  readonly latency_ms: number
  readonly repeats: number
  readonly end_user: string | null
  readonly alias: string | null
  readonly truncated: boolean | null
}

export const storedRow = (requestId: string) =>
  sql<SeenRow>`
      SELECT status, tokens_in::float8, tokens_out::float8, model, endpoint, client_request_id, error_type,
        key_id::text, latency_ms, repeats, end_user, alias, truncated
      FROM audit_log WHERE request_id = ${requestId}::text::uuid`.pipe(Effect.map((rows) => rows[0]))

/** The status that a request's client got: of its correction, or else of its row. */
export const statusOf = (requestId: string) =>
  sql<{ readonly status: number }>`
      SELECT coalesce(c.status, a.status) AS status
      FROM audit_log a LEFT JOIN audit_corrections c USING (request_id)
      WHERE request_id = ${requestId}::text::uuid`.pipe(Effect.map((rows) => rows[0]?.status))

/** What was corrected of a request, once its own process had ended it after all. */
export const correctionOf = (requestId: string) =>
  sql<{ readonly tokens_in: number; readonly tokens_out: number; readonly status: number }>`
      SELECT tokens_in::float8, tokens_out::float8, status FROM audit_corrections
      WHERE request_id = ${requestId}::text::uuid`.pipe(Effect.map((rows) => rows[0]))

export const hasIntent = (requestId: string) =>
  sql`SELECT FROM intents WHERE request_id = ${requestId}::text::uuid`.pipe(
    Effect.map((rows) => rows.length > 0)
  )

/** A key as `rotate-key` stores it: with the account of the key that it replaces. */
export const insertKey = ({ accountId, keyId, tenantId }: Caller) =>
  sql`
      WITH tenant AS (
        INSERT INTO tenants (id, name, rpm, tpm, concurrent) VALUES (${tenantId}::text::uuid, ${tenantId}, 1, 1, 1)
        ON CONFLICT DO NOTHING
      )
      INSERT INTO api_keys (id, tenant_id, name, prefix, hash, budget_account)
      VALUES (${keyId}::text::uuid, ${tenantId}::text::uuid, 'key', 'tg_' || substr(md5(${keyId}), 1, 9), '$argon2id$',
        nullif(${accountId}::text, ${keyId}::text)::uuid)`
