/**
 * What was used and what was asked, for operators: sums of the ledger, and the rows of the audit. Read only. Every read
 * is bounded by a number of rows and by a time.
 */
import { Context, Effect, Layer, Record } from "effect"
import { SqlClient } from "effect/sql"
import { dateNumbered, dayMs, TimeZone } from "../../domain/Calendar.ts"
import type { Period } from "../../domain/Limits.ts"
import { UnknownKey, withRegistryDownAfter } from "../Errors.ts"
import { largeRead, type Owner, requireTenant, UsageTotals } from "../rows.ts"
import * as Values from "../Values.ts"
import { readNow, readPeriod } from "../period.ts"
import { readReport, type ReportQuery } from "./report.ts"
import {
  isRequestId,
  readNewest,
  readRequest,
  readTalliedAround,
  readWrittenSince,
  type RequestFilter,
  type RequestQuery
} from "./requests.ts"

const make = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const calendar = yield* TimeZone

  const large = largeRead(sql)

  const checkFilter = Effect.fnUntraced(function* ({ key, tenant }: RequestFilter) {
    if (tenant !== undefined) yield* requireTenant(sql, tenant)
    if (key === undefined) return
    if ((yield* sql`SELECT 1 FROM api_keys WHERE prefix = ${key}`).length === 0)
      return yield* new UnknownKey({ prefix: key })
  })

  const report = Effect.fnUntraced(function* (query: ReportQuery) {
    const top = yield* Values.validate("top", Values.reportRows, query.top)
    if (query.tenant !== undefined) yield* requireTenant(sql, query.tenant)
    const period = yield* readPeriod(sql, query, calendar)
    return yield* large(120, readReport(sql, { ...query, period, top }))
  }, withRegistryDownAfter("125 seconds"))

  return {
    report,
    /** Of one end user of a key or a tenant, who may have several stored names, in the current period. From the audit: the ledger has no names. */
    usageOfUser: Effect.fnUntraced(function* (owner: Owner, span: Period, user: string) {
      yield* checkFilter(owner)
      const { dates } = calendar.dayAt(yield* readNow(sql))
      // Ids are looked for from two days before it, in any zone, and have no time before 1970.
      const day = span === "total" ? dateNumbered(3) : dates[span].from
      const period = yield* readPeriod(sql, { since: { day } }, calendar)
      const query = { ...owner, by: "user", user, period, top: 1 } as const
      const { others, rows } = yield* large(120, readReport(sql, query))
      const all = others === undefined ? rows : [...rows, others]
      return Record.map(UsageTotals.fields, (_, of) => all.reduce((sum, row) => sum + row[of], 0))
    }, withRegistryDownAfter("125 seconds")),
    /**
     * The newest requests, newest first. By tenant or status it looks at the newest `maxScanned` requests only; `exhausted`:
     * whether there are older ones that it did not look at.
     */
    requests: Effect.fnUntraced(function* (query: RequestQuery) {
      const limit = yield* Values.validate("limit", Values.listed, query.limit)
      yield* checkFilter(query)
      const period = yield* readPeriod(sql, query, calendar, { agoMs: dayMs })
      return { ...(yield* large(30, readNewest(sql, { ...query, limit, period }))), period }
    }, withRegistryDownAfter("35 seconds")),
    /** Rows written since an instant (epoch ms, by the database's clock), in the order of writing, and what the clock says. */
    writtenSince: Effect.fnUntraced(function* (filter: RequestFilter, since: number | undefined) {
      yield* checkFilter(filter)
      return yield* readWrittenSince(sql, filter, since)
    }, withRegistryDownAfter("20 seconds")),
    /** By the id of the gateway, or by the client's own, which is looked for among the newest 5 × `maxScanned` requests. */
    request: (id: string) => withRegistryDownAfter("35 seconds")(large(30, readRequest(sql, id))),
    /** Rows that count several requests and that may count this one: they began when it arrived. */
    talliedAround: (id: string) =>
      isRequestId(id) ? withRegistryDownAfter("8 seconds")(readTalliedAround(sql, id)) : Effect.succeed([])
  }
})

export class Records extends Context.Service<Records>()("tollgate/admin/Records", { make }) {
  static readonly layer: Layer.Layer<Records, never, SqlClient.SqlClient> = Layer.effect(Records, make)
}
