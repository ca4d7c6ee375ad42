/**
 * The sums of the audit with its corrections: what the ledger must say of each key, tenant and UTC day of admission. The
 * only place that says it in SQL for a proof; `audit/statements.ts` and `audit/corrections.ts` add the same to the ledger
 * row by row.
 */
import type { SqlClient, Statement } from "effect/sql"

export interface AuditedDays {
  /** UTC days, as `2026-11-23`; `to` is not included */
  readonly from: string
  readonly to: string
  readonly key?: { readonly keyId: string; readonly tenantId: string }
}

/**
 * A query for `key_id`, `tenant_id`, `day`, `requests`, `tokens_in` and `tokens_out`. A correction whose audit row is lost
 * stands for one request.
 *
 * A request is admitted within a day of its arrival, so the ids say which months are read.
 */
export const auditedSums = (sql: SqlClient.SqlClient, { from, key, to }: AuditedDays): Statement.Fragment => {
  const [start, end] = [
    sql`${`${from}T00:00:00Z`}::text::timestamptz`,
    sql`${`${to}T00:00:00Z`}::text::timestamptz`
  ]
  const within = (row: string) =>
    sql.and([
      sql`${sql.literal(row)}.admitted_at >= ${start} AND ${sql.literal(row)}.admitted_at < ${end}`,
      sql`${sql.literal(row)}.key_id IS NOT NULL`,
      ...(key === undefined
        ? []
        : [
            sql`${sql.literal(row)}.key_id = ${key.keyId}::text::uuid`,
            sql`${sql.literal(row)}.tenant_id = ${key.tenantId}::text::uuid`
          ])
    ])
  return sql`
    SELECT key_id, tenant_id, (admitted_at AT TIME ZONE 'UTC')::date AS day, sum(requests) AS requests,
      sum(tokens_in) AS tokens_in, sum(tokens_out) AS tokens_out
    FROM (
      SELECT a.key_id, a.tenant_id, a.admitted_at, 1 AS requests, a.tokens_in, a.tokens_out FROM audit_log a
      WHERE ${within("a")} AND a.request_id >= first_request_id(${start} - interval '2 days')
        AND a.request_id < first_request_id(${end} + interval '2 days')
      UNION ALL
      SELECT c.key_id, c.tenant_id, c.admitted_at,
        CASE WHEN EXISTS (SELECT FROM audit_log a WHERE a.request_id = c.request_id) THEN 0 ELSE 1 END,
        c.tokens_in, c.tokens_out
      FROM audit_corrections c WHERE ${within("c")}
    ) entries GROUP BY 1, 2, 3`
}
