/** `Records` on Postgres. */
import { Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { pruneStep } from "../../audit/months.ts"
import { makeRowReader, oneRow } from "../../infra/rows.ts"
import { InvalidValue, UnknownKey, withRegistryDownAfter } from "../Errors.ts"
import { requireTenant } from "../rows.ts"
import * as Values from "../Values.ts"
import { Records, type ReportDay, type RequestFilter } from "./Records.ts"
import { readReport } from "./report.ts"
import { isRequestId, readNewest, readRequest, readTalliedAround, readWrittenSince } from "./requests.ts"

const partitions = makeRowReader(
  ({ relation }) => `partition ${String(relation)}`,
  Schema.Struct({ relation: Schema.String, rows: Schema.Finite })
)

const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  /**
   * Reads many rows: the settings of a request's short statements would plan it badly and end it after two seconds. `seconds`
   * bounds it.
   */
  const large = <A, E>(seconds: number, read: Effect.Effect<A, E>) =>
    sql.withTransaction(
      Effect.gen(function* () {
        yield* sql`SET LOCAL statement_timeout = ${sql.literal(String(seconds * 1000))}`
        yield* sql`SET LOCAL enable_seqscan = on`
        yield* sql`SET LOCAL enable_hashjoin = on`
        return yield* read
      })
    )

  const checkFilter = Effect.fnUntraced(function* ({ key, tenant }: RequestFilter) {
    if (tenant !== undefined) yield* requireTenant(sql, tenant)
    if (key === undefined) return
    const prefix = yield* Values.validate("key", Values.prefix, key)
    if ((yield* sql`SELECT 1 FROM api_keys WHERE prefix = ${prefix}`).length === 0)
      return yield* new UnknownKey({ prefix })
  })

  const report = Effect.fnUntraced(function* (query: Parameters<Records["Service"]["report"]>[0]) {
    const top = yield* Values.validate("top", Values.reportRows, query.top)
    if (query.tenant !== undefined) yield* requireTenant(sql, query.tenant)
    const today = sql`(now() AT TIME ZONE 'UTC')::date`
    const dayOf = (day: ReportDay | undefined) =>
      day === undefined
        ? sql`NULL::date`
        : "day" in day
          ? sql`${day.day}::text::date`
          : sql`${today} - ${day.daysAgo}::int`
    const { since, until } = yield* Effect.flatMap(
      sql`
        WITH u AS (SELECT coalesce(${dayOf(query.until)}, ${today}) AS until)
        SELECT coalesce(${dayOf(query.since)}, date_trunc('month', until)::date)::text AS since, until::text FROM u`,
      oneRow({ since: Schema.String, until: Schema.String })
    )
    if (since > until)
      return yield* new InvalidValue({ field: "since", expected: "a day that is not after --until" })
    return yield* large(120, readReport(sql, { ...query, since, until, top }))
  }, withRegistryDownAfter("125 seconds"))

  return Records.of({
    report,
    requests: Effect.fnUntraced(function* (query) {
      const limit = yield* Values.validate("limit", Values.listed, query.limit)
      const sinceMs = yield* Values.validate("since", Values.lifetimeMs, query.sinceMs)
      yield* checkFilter(query)
      return yield* large(30, readNewest(sql, { ...query, limit, sinceMs }))
    }, withRegistryDownAfter("35 seconds")),
    writtenSince: Effect.fnUntraced(function* (filter, since) {
      yield* checkFilter(filter)
      return yield* readWrittenSince(sql, filter, since)
    }, withRegistryDownAfter("20 seconds")),
    request: (id) => withRegistryDownAfter("35 seconds")(large(30, readRequest(sql, id))),
    talliedAround: (id) =>
      isRequestId(id) ? withRegistryDownAfter("8 seconds")(readTalliedAround(sql, id)) : Effect.succeed([]),
    prunable: Effect.fnUntraced(function* (given) {
      const days = yield* Values.validate("older-than", Values.auditDays, given)
      return yield* Effect.flatMap(
        sql`SELECT name AS relation, estimated_rows::float8 AS rows FROM audit_partitions
          WHERE to_id <= first_request_id(date_trunc('month', (now() - ${days}::float8 * interval '1 day') AT TIME ZONE 'UTC')
            AT TIME ZONE 'UTC') ORDER BY to_id`,
        partitions.all
      )
    }, withRegistryDownAfter("15 seconds")),
    pruneStep: Effect.fnUntraced(function* (given) {
      return yield* pruneStep(sql, yield* Values.validate("older-than", Values.auditDays, given))
    }, withRegistryDownAfter("15 seconds"))
  })
})

export const layerPostgres: Layer.Layer<Records, never, SqlClient.SqlClient> = Layer.effect(Records, make)
