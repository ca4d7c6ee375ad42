/** Reads rows of the audit with their corrections. */
import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { endUserOf } from "../../domain/EndUser.ts"
import { makeRowReader, oneRow, type Row } from "../../infra/rows.ts"
import { withoutDefaultTag } from "../../domain/modelName.ts"
import type { Bounds, Period } from "./period.ts"

const Text = Schema.NullOr(Schema.String)

/** A row of the audit as it is after its correction. */
export const RequestRow = Schema.Struct({
  requestId: Schema.String,
  arrivedAt: Schema.Date,
  completedAt: Schema.Date,
  tenant: Text,
  key: Text,
  /** of the key */
  name: Text,
  method: Schema.String,
  endpoint: Schema.String,
  model: Text,
  alias: Text,
  endUser: Text,
  streamed: Schema.Boolean,
  status: Schema.Finite,
  errorType: Text,
  /** why it was refused */
  detail: Text,
  tokensIn: Schema.Finite,
  /** part of `tokensIn`; null: the model server did not say */
  tokensCached: Schema.NullOr(Schema.Finite),
  tokensOut: Schema.Finite,
  usageSource: Text,
  latencyMs: Schema.Finite,
  queuedMs: Schema.NullOr(Schema.Finite),
  loadMs: Schema.NullOr(Schema.Finite),
  clientIp: Schema.String,
  clientRequestId: Text,
  truncated: Schema.NullOr(Schema.Boolean),
  /** number of requests that the row stands for */
  repeats: Schema.Finite,
  /** whether a correction changed status or tokens */
  corrected: Schema.Boolean
})
export type RequestRow = typeof RequestRow.Type

export const Correction = Schema.Struct({
  tokensIn: Schema.Finite,
  tokensOut: Schema.Finite,
  status: Schema.Finite,
  errorType: Text,
  correctedAt: Schema.Date
})

/** A request that is running, or whose process died. */
export const OpenRequest = Schema.Struct({
  requestId: Schema.String,
  tenant: Text,
  key: Schema.String,
  model: Schema.String,
  endpoint: Schema.String,
  arrivedAt: Schema.Date,
  admittedAt: Schema.Date,
  held: Schema.Finite,
  tokensIn: Schema.Finite,
  tokensOut: Schema.Finite,
  leaseUntil: Schema.Date
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

const ofRequest = ({ requestId }: Row) => `request ${String(requestId)}`
const requestRows = makeRowReader(ofRequest, RequestRow)

/**
 * Columns of `a` (the log), `c` (its correction, or nothing), `t` (the tenant) and `k` (the key), under the names of
 * `RequestRow`.
 */
const columns = (corrected: boolean): string => {
  const effective = (column: string) => (corrected ? `coalesce(c.${column}, a.${column})` : `a.${column}`)
  const sum = (column: string) => (corrected ? `a.${column} + coalesce(c.${column}, 0)` : `a.${column}`)
  return `a.request_id::text AS "requestId", a.arrived_at AS "arrivedAt", a.completed_at AS "completedAt", t.name AS tenant,
    a.key_prefix AS key, k.name, a.method, a.endpoint, a.model, a.alias, a.end_user AS "endUser", a.streamed,
    ${effective("status")} AS status,
    ${corrected ? "CASE WHEN c.request_id IS NULL THEN a.error_type ELSE c.error_type END" : "a.error_type"} AS "errorType",
    ${corrected ? "CASE WHEN c.request_id IS NULL THEN a.detail END" : "a.detail"} AS detail,
    (${sum("tokens_in")})::float8 AS "tokensIn", a.tokens_cached::float8 AS "tokensCached",
    (${sum("tokens_out")})::float8 AS "tokensOut",
    ${effective("usage_source")} AS "usageSource", a.latency_ms AS "latencyMs", a.queued_ms AS "queuedMs",
    a.load_ms AS "loadMs",
    a.client_ip AS "clientIp", a.client_request_id AS "clientRequestId", a.truncated, a.repeats,
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
    ...(user === undefined ? [] : [sql`a.end_user IN (${user}, ${endUserOf(user) ?? user})`]),
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
    from = last.completedAt
    // A time of the database has microseconds, which a date of JavaScript has not.
    after = sql`(a.completed_at, a.request_id) >
      (SELECT l.completed_at, l.request_id FROM audit_log l WHERE l.request_id = ${last.requestId}::text::uuid)`
  }
})

const corrections = makeRowReader(
  (row) => `the correction of ${ofRequest(row)}`,
  Schema.Struct({ requestId: Schema.String, ...Correction.fields })
)
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
  const open =
    yield* openRequests.all(sql`SELECT i.request_id::text AS "requestId", t.name AS tenant, i.key_prefix AS key, i.model, i.endpoint,
        i.arrived_at AS "arrivedAt", i.admitted_at AS "admittedAt", i.held::float8, i.tokens_in::float8 AS "tokensIn",
        i.tokens_out::float8 AS "tokensOut", i.lease_until AS "leaseUntil"
      FROM intents i LEFT JOIN tenants t ON t.id = i.tenant_id
      WHERE ${own ? sql`i.request_id = ${id}::text::uuid` : sql`i.client_request_id = ${id}`}
      ORDER BY i.request_id DESC LIMIT ${maxSameId}`)
  const corrected =
    yield* corrections.all(sql`SELECT request_id::text AS "requestId", tokens_in::float8 AS "tokensIn", tokens_out::float8 AS "tokensOut", status,
        error_type AS "errorType", corrected_at AS "correctedAt"
      FROM audit_corrections WHERE ${sql.or([
        sql`false`,
        ...rows.map(({ requestId }) => sql`request_id = ${requestId}::text::uuid`)
      ])}`)
  const ids = [...new Set([...open, ...rows].map(({ requestId }) => requestId))]
  return ids.map((requestId): RequestDetails => ({
    row: rows.find((row) => row.requestId === requestId),
    correction: corrected.find((correction) => correction.requestId === requestId),
    open: open.find((intent) => intent.requestId === requestId)
  }))
})

/** A row stands for refusals of one second; it has the id of the first, and is written up to some seconds later. */
export const readTalliedAround = (sql: SqlClient.SqlClient, requestId: string) =>
  requestRows.all(sql`SELECT ${sql.literal(columns(true))} FROM audit_log a ${sql.literal(joined)}
      WHERE a.request_id >= first_request_id(request_id_time(${requestId}::text::uuid) - interval '2 seconds')
        AND a.request_id <= ${requestId}::text::uuid AND a.repeats > 1
      ORDER BY a.request_id DESC LIMIT 20`)
