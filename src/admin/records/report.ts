/**
 * Sums of the ledger by tenant, key, model or day, and of the audit by user.
 *
 * The usage by model is a table beside the ledger. What the ledger has more is from before that table, and has no model. So
 * the sums of a report are those of the ledger, to the token.
 */
import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import type { Report, ReportColumn, ReportQuery, Totals } from "./Records.ts"

const Row = Schema.Struct({
  place: Schema.NullOr(Schema.Finite),
  name: Schema.NullOr(Schema.String),
  label: Schema.NullOr(Schema.String),
  tenant: Schema.NullOr(Schema.String),
  count: Schema.Finite,
  requests: Schema.Finite,
  tokens_in: Schema.Finite,
  tokens_out: Schema.Finite,
  errors: Schema.Finite
})
const decodeRows = Schema.decodeUnknownEffect(Schema.Array(Row))

const totalsOf = (row: typeof Row.Type): Totals => ({
  requests: row.requests,
  tokensIn: row.tokens_in,
  tokensOut: row.tokens_out,
  errors: row.errors
})

const names = {
  tenant: { name: "t.name", label: "NULL::text", tenant: "NULL::text" },
  key: { name: "k.prefix", label: "k.name", tenant: "t.name" },
  model: { name: "nullif(f.model, '')", label: "NULL::text", tenant: "NULL::text" },
  user: { name: "f.end_user", label: "NULL::text", tenant: "NULL::text" },
  day: { name: "f.day::text", label: "NULL::text", tenant: "NULL::text" }
} as const satisfies { readonly [C in ReportColumn]: unknown }

/** Days and tenant are checked before. */
export const readReport = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  query: Pick<ReportQuery, "by" | "tenant" | "top"> & { readonly since: string; readonly until: string }
) {
  const { by, since, tenant, top, until } = query
  const ofTenant =
    tenant === undefined ? sql`true` : sql`tenant_id = (SELECT id FROM tenants WHERE name = ${tenant})`
  const days = sql`day BETWEEN ${since}::text::date AND ${until}::text::date`
  const fromLedger = sql`
    WITH usage AS (SELECT * FROM usage_daily WHERE ${days} AND ${ofTenant}),
      booked AS (SELECT * FROM ledger WHERE ${days} AND ${ofTenant}),
      by_model AS (SELECT key_id, tenant_id, day, sum(requests) AS requests, sum(tokens_in) AS tokens_in, sum(tokens_out) AS tokens_out
        FROM usage GROUP BY 1, 2, 3),
      facts AS (
        SELECT key_id, tenant_id, day, model, requests, tokens_in, tokens_out, errors, NULL::text AS end_user FROM usage
        UNION ALL
        SELECT key_id, tenant_id, day, '', coalesce(b.requests, 0) - coalesce(m.requests, 0),
          coalesce(b.tokens_in, 0) - coalesce(m.tokens_in, 0), coalesce(b.tokens_out, 0) - coalesce(m.tokens_out, 0), 0, NULL
        FROM booked b FULL JOIN by_model m USING (key_id, tenant_id, day)
        WHERE (b.requests, b.tokens_in, b.tokens_out) IS DISTINCT FROM (m.requests, m.tokens_in, m.tokens_out)
      )`
  // A request is admitted after it arrived, within a day: the ids say which months are read.
  const fromAudit = sql`
    WITH facts AS (
      SELECT a.key_id, a.tenant_id, (a.admitted_at AT TIME ZONE 'UTC')::date AS day, ''::text AS model, 1 AS requests,
        a.tokens_in + coalesce(c.tokens_in, 0) AS tokens_in, a.tokens_out + coalesce(c.tokens_out, 0) AS tokens_out,
        (coalesce(c.status, a.status) >= 400)::integer AS errors, a.end_user
      FROM audit_log a LEFT JOIN audit_corrections c USING (request_id)
      WHERE a.admitted_at IS NOT NULL AND a.key_id IS NOT NULL
        AND a.request_id >= first_request_id(${since}::text::date - interval '2 days')
        AND a.request_id < first_request_id(${until}::text::date + interval '2 days')
        AND (a.admitted_at AT TIME ZONE 'UTC')::date BETWEEN ${since}::text::date AND ${until}::text::date
        AND ${tenant === undefined ? sql`true` : sql`a.tenant_id = (SELECT id FROM tenants WHERE name = ${tenant})`}
    )`
  const { label, name, tenant: tenantName } = names[by]
  const order = by === "day" ? "name DESC" : "tokens_in + tokens_out DESC, requests DESC, name"
  const rows = yield* Effect.flatMap(
    sql`
      ${by === "user" ? fromAudit : fromLedger}, grouped AS (
        SELECT ${sql.literal(name)} AS name, ${sql.literal(label)} AS label, ${sql.literal(tenantName)} AS tenant,
          sum(f.requests) AS requests, sum(f.tokens_in) AS tokens_in, sum(f.tokens_out) AS tokens_out, sum(f.errors) AS errors
        FROM facts f LEFT JOIN api_keys k ON k.id = f.key_id LEFT JOIN tenants t ON t.id = f.tenant_id GROUP BY 1, 2, 3
      ), placed AS (SELECT *, row_number() OVER (ORDER BY ${sql.literal(order)}) AS place FROM grouped)
      SELECT place::float8, name, label, tenant, 1::float8 AS count, requests::float8, tokens_in::float8, tokens_out::float8,
        errors::float8 FROM placed WHERE place <= ${top}
      UNION ALL
      SELECT NULL, NULL, NULL, NULL, count(*), sum(requests)::float8, sum(tokens_in)::float8, sum(tokens_out)::float8,
        sum(errors)::float8 FROM placed WHERE place > ${top} HAVING count(*) > 0
      ORDER BY 1`,
    decodeRows
  )
  const others = rows.find(({ place }) => place === null)
  const listed = rows
    .filter(({ place }) => place !== null)
    .map((row) => ({ ...totalsOf(row), name: row.name, label: row.label, tenant: row.tenant }))
  return {
    since,
    until,
    rows: by === "day" ? listed.toReversed() : listed,
    others: others === undefined ? undefined : { ...totalsOf(others), count: others.count }
  } satisfies Report
})
