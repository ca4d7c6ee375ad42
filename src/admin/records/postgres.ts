/** `Records` on Postgres. */
import { Effect, Layer, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { pruneStep } from "../../audit/months.ts"
import { dayMs } from "../../domain/Calendar.ts"
import { makeRowReader } from "../../infra/rows.ts"
import { UnknownKey, withRegistryDownAfter } from "../Errors.ts"
import { largeRead, requireTenant } from "../rows.ts"
import * as Values from "../Values.ts"
import { readPeriod } from "./period.ts"
import { Records, type RequestFilter } from "./Records.ts"
import { readReport } from "./report.ts"
import { isRequestId, readNewest, readRequest, readTalliedAround, readWrittenSince } from "./requests.ts"

const partitions = makeRowReader(
  ({ relation }) => `partition ${String(relation)}`,
  Schema.Struct({ relation: Schema.String, rows: Schema.Finite })
)

const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient

  const large = largeRead(sql)

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
    const period = yield* readPeriod(sql, query)
    return yield* large(120, readReport(sql, { ...query, period, top }))
  }, withRegistryDownAfter("125 seconds"))

  return Records.of({
    report,
    requests: Effect.fnUntraced(function* (query) {
      const limit = yield* Values.validate("limit", Values.listed, query.limit)
      yield* checkFilter(query)
      const period = yield* readPeriod(sql, query, { agoMs: dayMs })
      return { ...(yield* large(30, readNewest(sql, { ...query, limit, period }))), period }
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
