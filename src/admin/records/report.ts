/** Sums of `usage_daily` by tenant, key, model or day, and of the audit by user. Both have the sums of the ledger, to the token. */
import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { makeRowReader } from "../../infra/rows.ts"
import type { Report, ReportColumn, ReportQuery } from "./Records.ts"

const Row = Schema.Struct({
  place: Schema.NullOr(Schema.Finite),
  name: Schema.NullOr(Schema.String),
  label: Schema.NullOr(Schema.String),
  tenant: Schema.NullOr(Schema.String),
  count: Schema.Finite,
  requests: Schema.Finite,
  tokensIn: Schema.Finite,
  tokensCached: Schema.Finite,
  tokensOut: Schema.Finite,
  errors: Schema.Finite
})
const reportRows = makeRowReader(({ name }) => `the row of ${String(name)}`, Row)

const noName = "NULL::text"

/**
 * What a row is about: the columns that are summed by, as `part` and `tenant_id`, and the names of a row. Figures are summed before
 * names are looked up, because a year has many more rows than keys.
 */
const parts = {
  tenant: { part: "tenant_id", tenantId: "tenant_id", name: "t.name", label: noName, tenant: noName },
  key: { part: "key_id", tenantId: "tenant_id", name: "k.prefix", label: "k.name", tenant: "t.name" },
  model: { part: "model", tenantId: "NULL::uuid", name: "nullif(s.part, '')", label: noName, tenant: noName },
  user: { part: "end_user", tenantId: "NULL::uuid", name: "s.part", label: noName, tenant: noName },
  day: { part: "day", tenantId: "NULL::uuid", name: "s.part::text", label: noName, tenant: noName }
} as const satisfies { readonly [C in ReportColumn]: unknown }

const figures =
  "sum(requests) AS requests, sum(tokens_in) AS tokens_in, sum(tokens_cached) AS tokens_cached, sum(tokens_out) AS tokens_out"

/** Days and tenant are checked before. */
export const readReport = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  query: Pick<ReportQuery, "by" | "tenant" | "top"> & { readonly since: string; readonly until: string }
) {
  const { by, since, tenant, top, until } = query
  const { label, name, part, tenant: tenantName, tenantId } = parts[by]
  const ofTenant =
    tenant === undefined ? sql`true` : sql`tenant_id = (SELECT id FROM tenants WHERE name = ${tenant})`
  const days = sql`day BETWEEN ${since}::text::date AND ${until}::text::date`
  const grouped = sql.literal(`${part} AS part, ${tenantId} AS tenant_id`)
  const fromUsage = sql`
    WITH sums AS (
      SELECT ${grouped}, ${sql.literal(figures)}, sum(errors) AS errors FROM usage_daily WHERE ${days} AND ${ofTenant} GROUP BY 1, 2)`
  // A request is admitted after it arrived, within a day: the ids say which months are read.
  const fromAudit = sql`
    WITH facts AS (
      SELECT 1 AS requests, a.tokens_in + coalesce(c.tokens_in, 0) AS tokens_in, coalesce(a.tokens_cached, 0) AS tokens_cached,
        a.tokens_out + coalesce(c.tokens_out, 0) AS tokens_out,
        (coalesce(c.status, a.status) >= 400)::integer AS errors, a.end_user
      FROM audit_log a LEFT JOIN audit_corrections c USING (request_id)
      WHERE a.admitted_at IS NOT NULL AND a.key_id IS NOT NULL
        AND a.request_id >= first_request_id(${since}::text::date - interval '2 days')
        AND a.request_id < first_request_id(${until}::text::date + interval '2 days')
        AND (a.admitted_at AT TIME ZONE 'UTC')::date BETWEEN ${since}::text::date AND ${until}::text::date
        AND ${tenant === undefined ? sql`true` : sql`a.tenant_id = (SELECT id FROM tenants WHERE name = ${tenant})`}
    ), sums AS (SELECT ${grouped}, ${sql.literal(figures)}, sum(errors) AS errors FROM facts GROUP BY 1, 2)`
  const names = sql.literal(
    [
      ...(by === "key" ? ["LEFT JOIN api_keys k ON k.id = s.part"] : []),
      ...(by === "key" || by === "tenant" ? ["LEFT JOIN tenants t ON t.id = s.tenant_id"] : [])
    ].join(" ")
  )
  const order = by === "day" ? "name DESC" : "tokens_in + tokens_out DESC, requests DESC, name"
  const rows = yield* Effect.flatMap(
    sql`
      ${by === "user" ? fromAudit : fromUsage}, named AS (
        SELECT ${sql.literal(name)} AS name, ${sql.literal(label)} AS label, ${sql.literal(tenantName)} AS tenant,
          ${sql.literal(figures)}, sum(errors) AS errors
        FROM sums s ${names} GROUP BY 1, 2, 3
      ), placed AS (SELECT *, row_number() OVER (ORDER BY ${sql.literal(order)}) AS place FROM named)
      SELECT place::float8, name, label, tenant, 1::float8 AS count, requests::float8, tokens_in::float8 AS "tokensIn",
        tokens_cached::float8 AS "tokensCached", tokens_out::float8 AS "tokensOut", errors::float8 FROM placed WHERE place <= ${top}
      UNION ALL
      SELECT NULL, NULL, NULL, NULL, count(*), sum(requests)::float8, sum(tokens_in)::float8, sum(tokens_cached)::float8, sum(tokens_out)::float8,
        sum(errors)::float8 FROM placed WHERE place > ${top} HAVING count(*) > 0
      ORDER BY 1`,
    reportRows.all
  )
  const others = rows.find(({ place }) => place === null)
  const listed = rows.filter(({ place }) => place !== null)
  return { since, until, rows: by === "day" ? listed.toReversed() : listed, others } satisfies Report
})
