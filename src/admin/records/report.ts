/** Sums of `usage_daily` by tenant, key, model or day, and of the audit by user. Both have the sums of the ledger, to the token. */
import { Effect, Schema, Struct } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { ledgerDay } from "../../audit/rows.ts"
import { snakeCase } from "../../domain/text.ts"
import { makeRowReader } from "../../infra/rows.ts"
import type { Bounds, Period } from "../period.ts"
import { UsageTotals } from "../rows.ts"
import { isUser, ofAccount } from "../users.ts"
import { isModel, type RequestFilter } from "./requests.ts"

export const reportColumns = ["tenant", "key", "model", "user", "day"] as const
export type ReportColumn = (typeof reportColumns)[number]

/** What one million tokens of a model cost, by its name; `*` is for all others. */
export interface Price {
  readonly model: string
  readonly in: number
  readonly out: number
  /** of tokens of the prompt that the model server had in its cache */
  readonly cached: number
}

/**
 * Default period: from the first of the month of `until`, until today. With a status refused requests count too, which cost
 * nothing.
 */
export interface ReportQuery extends Omit<RequestFilter, "key">, Bounds {
  readonly by: ReportColumn
  readonly prices?: ReadonlyArray<Price> | undefined
  /** how many rows have a line of their own; the others are summed */
  readonly top: number
}

export const Totals = Schema.Struct({
  ...UsageTotals.fields,
  /** requests that ended with a status of 400 or more; 499, a client that left, is one */
  errors: Schema.Finite,
  /** requests that the model server loaded the model for, and how long that took */
  loads: Schema.Finite,
  loadMs: Schema.Finite,
  /** by the prices that were given */
  cost: Schema.Finite,
  /** tokens of models that have no price */
  unpriced: Schema.Finite
})
export type Totals = typeof Totals.Type

const Row = Schema.Struct({
  /** null: the sum of the rows beyond `top` */
  place: Schema.NullOr(Schema.Finite),
  /** null: not named (a user) */
  name: Schema.NullOr(Schema.String),
  /** of a key: its label and its tenant */
  label: Schema.NullOr(Schema.String),
  tenant: Schema.NullOr(Schema.String),
  /** how many are summed */
  count: Schema.Finite,
  ...Totals.fields
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

const sumsOf = (fields: object): string =>
  Object.keys(fields)
    .map((field) => `sum(${snakeCase(field)}) AS ${snakeCase(field)}`)
    .join(", ")
const figures = sumsOf(Struct.omit(Totals.fields, ["cost", "unpriced"]))
const money = sumsOf(Struct.pick(Totals.fields, ["cost", "unpriced"]))
const columns = Object.keys(Totals.fields)
  .map((field) => `${snakeCase(field)}::float8 AS "${field}"`)
  .join(", ")

/** `key`: only what keys of its account asked, where the audit is read */
type Query = Omit<ReportQuery, keyof Bounds> & { readonly period: Period; readonly key?: string }

/** The sums of whole days, by model. */
const fromUsage = (
  sql: SqlClient.SqlClient,
  { model, tenant }: Query,
  grouped: Statement.Fragment,
  { since, until }: NonNullable<Period["days"]>
) => sql`
  SELECT ${grouped}, model, ${sql.literal(figures)} FROM usage_daily
  WHERE ${sql.and([
    sql`day BETWEEN ${since}::text::date AND ${until}::text::date`,
    ...(tenant === undefined ? [] : [sql`tenant_id = (SELECT id FROM tenants WHERE name = ${tenant})`]),
    ...(model === undefined ? [] : [isModel(sql, "model", model)])
  ])} GROUP BY 1, 2, 3`

/**
 * The same of any period, and of facts that no sum has. A request is admitted after it arrived, within a day: the ids say which
 * months are read.
 */
const fromAudit = (
  sql: SqlClient.SqlClient,
  { key, model, period, status, tenant, user }: Query,
  grouped: Statement.Fragment
) => {
  const [from, to] = [period.from.toISOString(), period.to.toISOString()]
  const { days } = period
  // What the ledger counts; or all requests with a status, refused ones too.
  const [at, counted] =
    status === undefined
      ? [sql`a.admitted_at`, sql`a.admitted_at IS NOT NULL AND a.key_id IS NOT NULL`]
      : [
          sql`coalesce(a.admitted_at, a.arrived_at)`,
          sql`coalesce(c.status, a.status) BETWEEN ${status[0]}::int AND ${status[1]}::int`
        ]
  const day = sql.literal(ledgerDay("a", "coalesce(a.admitted_at, a.arrived_at)"))
  return sql`
    SELECT ${grouped}, model, ${sql.literal(figures)} FROM (
      SELECT a.repeats AS requests, a.tokens_in + coalesce(c.tokens_in, 0) AS tokens_in, coalesce(a.tokens_cached, 0) AS tokens_cached,
        a.tokens_out + coalesce(c.tokens_out, 0) AS tokens_out,
        CASE WHEN coalesce(c.status, a.status) >= 400 THEN a.repeats ELSE 0 END AS errors,
        (a.load_ms IS NOT NULL)::integer AS loads, coalesce(a.load_ms, 0) AS load_ms,
        a.end_user, a.key_id, a.tenant_id, coalesce(a.model, '') AS model, ${day} AS day
      FROM audit_log a LEFT JOIN audit_corrections c USING (request_id) LEFT JOIN api_keys k ON k.id = a.key_id
      WHERE ${sql.and([
        counted,
        sql`a.request_id >= first_request_id(${from}::text::timestamptz - interval '2 days')`,
        sql`a.request_id < first_request_id(${to}::text::timestamptz + interval '2 days')`,
        days === undefined
          ? sql`${at} >= ${from}::text::timestamptz AND ${at} < ${to}::text::timestamptz`
          : sql`${day} BETWEEN ${days.since}::text::date AND ${days.until}::text::date`,
        ...(tenant === undefined ? [] : [sql`a.tenant_id = (SELECT id FROM tenants WHERE name = ${tenant})`]),
        ...(key === undefined ? [] : [ofAccount(sql, key)]),
        ...(model === undefined ? [] : [isModel(sql, "a.model", model)]),
        ...(user === undefined ? [] : [isUser(sql, user)])
      ])}) facts GROUP BY 1, 2, 3`
}

/** Period and tenant are checked before. */
export const readReport = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, query: Query) {
  const { by, period, prices = [], status, top, user } = query
  const { label, name, part, tenant: tenantName, tenantId } = parts[by]
  const grouped = sql.literal(`${part} AS part, ${tenantId} AS tenant_id`)
  const { days } = period
  const sums =
    days === undefined || by === "user" || user !== undefined || status !== undefined
      ? fromAudit(sql, query, grouped)
      : fromUsage(sql, query, grouped, days)
  const names = sql.literal(
    [
      ...(by === "key" ? ["LEFT JOIN api_keys k ON k.id = s.part"] : []),
      ...(by === "key" || by === "tenant" ? ["LEFT JOIN tenants t ON t.id = s.tenant_id"] : [])
    ].join(" ")
  )
  const order = by === "day" ? "name DESC" : "tokens_in + tokens_out DESC, requests DESC, name"
  const rows = yield* reportRows.all(sql`
      WITH prices AS (
        SELECT * FROM jsonb_to_recordset(${JSON.stringify(prices)}::jsonb) AS p(model text, "in" numeric, "out" numeric, cached numeric)
      ), sums AS (${sums}), priced AS (
        SELECT s.*, coalesce((tokens_in - tokens_cached) * p."in" + tokens_cached * p.cached + tokens_out * p."out", 0) / 1000000 AS cost,
          CASE WHEN p.model IS NULL THEN tokens_in + tokens_out ELSE 0 END AS unpriced
        FROM sums s LEFT JOIN LATERAL (
          SELECT * FROM prices p WHERE p.model IN (s.model, regexp_replace(s.model, ':latest$', ''), '*') ORDER BY p.model = '*' LIMIT 1
        ) p ON true
      ), named AS (
        SELECT ${sql.literal(name)} AS name, ${sql.literal(label)} AS label, ${sql.literal(tenantName)} AS tenant,
          ${sql.literal(figures)}, ${sql.literal(money)}
        FROM priced s ${names} GROUP BY 1, 2, 3
      ), placed AS (SELECT *, row_number() OVER (ORDER BY ${sql.literal(order)}) AS place FROM named),
      others AS (SELECT count(*) AS count, ${sql.literal(figures)}, ${sql.literal(money)} FROM placed WHERE place > ${top} HAVING count(*) > 0)
      SELECT place::float8, name, label, tenant, 1::float8 AS count, ${sql.literal(columns)} FROM placed WHERE place <= ${top}
      UNION ALL
      SELECT NULL, NULL, NULL, NULL, count::float8, ${sql.literal(columns)} FROM others
      ORDER BY 1`)
  const others = rows.find(({ place }) => place === null)
  const listed = rows.filter(({ place }) => place !== null)
  return { period, rows: by === "day" ? listed.toReversed() : listed, others }
})
export type Report = Effect.Success<ReturnType<typeof readReport>>
