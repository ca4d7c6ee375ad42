/** The requests of a difference: those that have its tokens, else those that were booked there. */
import { Effect, Schema } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { ledgerDay } from "../../audit/rows.ts"
import { makeRowReader } from "../../infra/rows.ts"
import { mostRequests, type Requests } from "./proof.ts"

const rows = makeRowReader(
  () => "a request",
  Schema.Struct({ id: Schema.String, exact: Schema.Boolean, count: Schema.Finite, matching: Schema.Finite })
)

export interface Where {
  /** a query for the ids of keys */
  readonly keys: Statement.Fragment
  /** the account of an end user: only its requests */
  readonly user?: string | undefined
  /** days of the ledger; `to` is not included */
  readonly from: string
  readonly to: string
  /** a condition on `tokens_in` and `tokens_out`, which have the correction of the request */
  readonly exact: Statement.Fragment
}

export const readRequests = (sql: SqlClient.SqlClient, { exact, from, keys, to, user }: Where) => {
  const day = sql.literal(ledgerDay("a"))
  return Effect.map(
    rows.all(sql`
        WITH booked AS (
          SELECT a.request_id, a.tokens_in + coalesce(c.tokens_in, 0) AS tokens_in,
            a.tokens_out + coalesce(c.tokens_out, 0) AS tokens_out
          FROM audit_log a LEFT JOIN audit_corrections c USING (request_id)
          WHERE a.key_prefix IN (SELECT prefix FROM api_keys WHERE id IN (${keys}))
            AND a.arrived_at >= ${from}::text::date - interval '2 days' AND a.arrived_at < ${to}::text::date + interval '2 days'
            AND a.admitted_at IS NOT NULL AND ${day} >= ${from}::text::date AND ${day} < ${to}::text::date
            ${user === undefined ? sql`` : sql`AND a.user_account = ${user}::text::uuid`}
        ), judged AS (SELECT request_id, (${exact}) AS exact FROM booked)
        SELECT request_id::text AS id, exact, count(*) OVER ()::float8 AS count, count(*) FILTER (WHERE exact) OVER ()::float8 AS matching
        FROM judged ORDER BY exact DESC, request_id DESC LIMIT ${mostRequests}`),
    (found): Requests => {
      const [first] = found
      const isExact = first?.exact === true
      const named = found.filter(({ exact }) => exact === isExact).map(({ id }) => id)
      const all = isExact ? first.matching : (first?.count ?? 0)
      return { requests: named, moreRequests: all - named.length, match: isExact ? "exact" : "involved" }
    }
  )
}
