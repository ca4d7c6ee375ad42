/** Reads rows of the audit with their corrections. */
import { Effect, Schema, Struct } from "effect"
import type { SqlClient } from "effect/sql"
import { AuditRow, IntentRow } from "../../audit/rows.ts"
import { readColumns, time, tokens } from "../../infra/columns.ts"
import { makeRowReader, oneRow, type Row } from "../../infra/rows.ts"
import { withoutDefaultTag } from "../../domain/modelName.ts"
import type { Bounds, Period } from "../period.ts"
import { isUser } from "../users.ts"

const Text = Schema.NullOr(Schema.String)

/** The columns of the log that operators see. */
const logged = Struct.omit(AuditRow.fields, [
  "admitted_at",
  "tenant_id",
  "key_id",
  "key_prefix",
  "user_account"
])

/** A row of the audit as it is after its correction. `name`: of the key */
export const RequestRow = Schema.Struct({
  ...Struct.pick(logged, ["request_id", "arrived_at"]),
  completed_at: Schema.Date,
  tenant: Text,
  key: Text,
  name: Text,
  ...logged,
  /** whether a correction changed status or tokens */
  corrected: Schema.Boolean
})
export type RequestRow = typeof RequestRow.Type

const correction = {
  ...Struct.pick(logged, ["request_id", "tokens_in", "tokens_out", "status", "error_type"]),
  corrected_at: time
}
const Correction = Schema.Struct(correction)

const intent = {
  ...Struct.omit(IntentRow.fields, ["tenant_id", "key_id", "key_prefix", "user_account"]),
  tokens_out: tokens,
  lease_until: time
}
/** A request that is running, or whose process died. */
const OpenRequest = Schema.Struct({
  ...Struct.pick(intent, ["request_id"]),
  tenant: Text,
  key: Schema.String,
  ...intent
})

export interface RequestFilter {
  readonly key?: string | undefined
  readonly tenant?: string | undefined
  readonly model?: string | undefined
  readonly user?: string | undefined
  /** the lowest and the highest status */
  readonly status?: readonly [number, number] | undefined
}

/** Default period: the last day. */
export interface RequestQuery extends RequestFilter, Bounds {
  readonly limit: number
}

/** What the audit says of a request, row by row. */
export interface RequestDetails {
  /** the row as it was written, without its correction */
  readonly row: RequestRow | undefined
  readonly correction: typeof Correction.Type | undefined
  readonly open: typeof OpenRequest.Type | undefined
}

/** How many rows of the log one query reads when no index helps. */
export const maxScanned = 100_000

const ofRequest = ({ request_id }: Row) => `request ${String(request_id)}`
const requestRows = makeRowReader(ofRequest, RequestRow)

/** Columns of `a` (the log), `c` (its correction, or nothing), `t` (the tenant) and `k` (the key), for `RequestRow`. */
const columns = (corrected: boolean): string => {
  const [uncorrected, change] = ["CASE WHEN c.request_id IS NULL THEN", "coalesce(c.tokens"]
  const instead = {
    status: "coalesce(c.status, a.status)",
    usage_source: "coalesce(c.usage_source, a.usage_source)",
    error_type: `${uncorrected} a.error_type ELSE c.error_type END`,
    detail: `${uncorrected} a.detail END`,
    tokens_in: `a.tokens_in + ${change}_in, 0)`,
    tokens_out: `a.tokens_out + ${change}_out, 0)`
  }
  return `${readColumns("a", logged, corrected ? instead : {})}, a.completed_at, t.name AS tenant, a.key_prefix AS key, k.name,
    c.request_id IS NOT NULL AS corrected`
}
const joined =
  "LEFT JOIN audit_corrections c ON c.request_id = a.request_id LEFT JOIN tenants t ON t.id = a.tenant_id LEFT JOIN api_keys k ON k.id = a.key_id"

/** A model by its name, with or without `:latest`. */
export const isModel = (sql: SqlClient.SqlClient, column: string, model: string) =>
  sql`${sql.literal(column)} IN (${model}, ${`${withoutDefaultTag(model)}:latest`})`

const conditions = (sql: SqlClient.SqlClient, { key, model, status, tenant, user }: RequestFilter) =>
  sql.and([
    ...(model === undefined
      ? []
      : [sql.or([isModel(sql, "a.model", model), sql`a.alias = ${withoutDefaultTag(model)}`])]),
    ...(user === undefined ? [] : [isUser(sql, user)]),
    ...(key === undefined ? [] : [sql`a.key_prefix = ${key}`]),
    ...(tenant === undefined ? [] : [sql`a.tenant_id = (SELECT id FROM tenants WHERE name = ${tenant})`]),
    ...(status === undefined
      ? []
      : [sql`coalesce(c.status, a.status) BETWEEN ${status[0]}::int AND ${status[1]}::int`]),
    sql`true`
  ])

/**
 * Newest first. A key has an index by time. Without a key the primary key is read backwards, because ids are in the order of
 * arrival. By tenant, model, user or status rows that do not match are read too, `maxScanned` at most.
 */
export const readNewest = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  query: RequestQuery & { readonly period: Period }
) {
  const { key, limit, model, period, status, tenant, user } = query
  const instant = (at: Date) => sql`${at.toISOString()}::text::timestamptz`
  const [from, to] = [instant(period.from), instant(period.to)]
  const isPlain = status === undefined && model === undefined && user === undefined
  const plain = isPlain && (tenant === undefined || key !== undefined)
  const scan = plain ? limit : maxScanned
  const newest =
    key === undefined
      ? sql`SELECT * FROM audit_log WHERE request_id >= first_request_id(${from}) AND request_id < first_request_id(${to}) ORDER BY request_id DESC LIMIT ${scan}`
      : sql`SELECT * FROM audit_log WHERE key_prefix = ${key} AND arrived_at >= ${from} AND arrived_at < ${to} ORDER BY arrived_at DESC LIMIT ${scan}`
  const rows = yield* requestRows.all(sql`
    SELECT ${sql.literal(columns(true))} FROM (${newest}) a ${sql.literal(joined)}
    WHERE ${conditions(sql, query)} ORDER BY a.arrived_at DESC, a.request_id DESC LIMIT ${limit}`)
  if (plain || rows.length === limit) return { rows, exhausted: false }
  const { scanned } = yield* oneRow({ scanned: Schema.Finite })(
    sql`SELECT count(*)::float8 AS scanned FROM (${newest}) a`
  )
  return { rows, exhausted: scanned === maxScanned }
})

/** A statement ends after two seconds, and many rows may be there after a pause of the reader. */
const page = 20_000

/** In the order of writing. The clock is read first: a row that is written meanwhile is found again next time. */
export const readWrittenSince = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  filter: RequestFilter,
  since: number | undefined
) {
  const { now } = yield* oneRow({ now: Schema.Finite })(
    sql`SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS now`
  )
  const rows: Array<RequestRow> = []
  let [from, after] = [new Date(since ?? now), sql`true`]
  for (;;) {
    const found = yield* requestRows.all(sql`
      SELECT ${sql.literal(columns(true))} FROM audit_log a ${sql.literal(joined)}
      WHERE a.completed_at >= ${from.toISOString()}::text::timestamptz AND ${after} AND ${conditions(sql, filter)}
      ORDER BY a.completed_at, a.request_id LIMIT ${page}`)
    rows.push(...found)
    const last = found.at(-1)
    if (found.length < page || last === undefined) return { now, rows }
    from = last.completed_at
    // A time of the database has microseconds, which a date of JavaScript has not.
    after = sql`(a.completed_at, a.request_id) >
      (SELECT l.completed_at, l.request_id FROM audit_log l WHERE l.request_id = ${last.request_id}::text::uuid)`
  }
})

const corrections = makeRowReader((row) => `the correction of ${ofRequest(row)}`, Correction)
const openRequests = makeRowReader((row) => `open ${ofRequest(row)}`, OpenRequest)

export const isRequestId = (id: string): boolean => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(id)

/** At most this many requests with the same id of the client are shown. */
const maxSameId = 20

export const readRequest = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, id: string) {
  const own = isRequestId(id)
  // The client's own id has no index: the newest part of the log is read.
  const found = own
    ? sql`SELECT * FROM audit_log WHERE request_id = ${id}::text::uuid`
    : sql`SELECT * FROM (SELECT * FROM audit_log ORDER BY request_id DESC LIMIT ${5 * maxScanned}) newest
        WHERE client_request_id = ${id} LIMIT ${maxSameId}`
  const rows = yield* requestRows.all(
    sql`SELECT ${sql.literal(columns(false))} FROM (${found}) a ${sql.literal(joined)} ORDER BY a.request_id DESC`
  )
  const open = yield* openRequests.all(sql`
    SELECT ${sql.literal(readColumns("i", intent))}, t.name AS tenant, i.key_prefix AS key
    FROM intents i LEFT JOIN tenants t ON t.id = i.tenant_id
    WHERE ${own ? sql`i.request_id = ${id}::text::uuid` : sql`i.client_request_id = ${id}`}
    ORDER BY i.request_id DESC LIMIT ${maxSameId}`)
  const corrected = yield* corrections.all(sql`
    SELECT ${sql.literal(readColumns("c", correction))} FROM audit_corrections c
    WHERE ${sql.or([sql`false`, ...rows.map(({ request_id }) => sql`c.request_id = ${request_id}::text::uuid`)])}`)
  const of = (id: string) => (one: { readonly request_id: string }) => one.request_id === id
  const ids = new Set([...open, ...rows].map(({ request_id }) => request_id))
  return [...ids].map((id): RequestDetails => ({
    row: rows.find(of(id)),
    correction: corrected.find(of(id)),
    open: open.find(of(id))
  }))
})

/** A row stands for refusals of one second; it has the id of the first, and is written up to some seconds later. */
export const readTalliedAround = (sql: SqlClient.SqlClient, requestId: string) =>
  requestRows.all(sql`SELECT ${sql.literal(columns(true))} FROM audit_log a ${sql.literal(joined)}
      WHERE a.request_id >= first_request_id(request_id_time(${requestId}::text::uuid) - interval '2 seconds')
        AND a.request_id <= ${requestId}::text::uuid AND a.repeats > 1
      ORDER BY a.request_id DESC LIMIT 20`)
