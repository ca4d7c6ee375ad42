/**
 * The monthly partitions of the audit log. Every replica makes those of the coming months, and with `AUDIT_RETENTION_DAYS`
 * drops those that are old. Functions of the database do both (`migrations/0001_schema.ts`), one replica at a time.
 * The ledger does not change.
 *
 * No row is refused because its month has no partition: it goes to the default partition.
 */
import * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Layer, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { timeoutDetached } from "../infra/time.ts"
import { background, jittered } from "../observability/background.ts"
import type { Metrics } from "../observability/Metrics.ts"

export interface AuditMonthsOptions {
  /** `AUDIT_RETENTION_DAYS`: rows older than this are removed; default: never */
  readonly retentionDays?: number | undefined
  /** seconds between two runs; default 3600 */
  readonly everyS?: number
}

/** What one step removed: a whole month, or some rows of a table. `rows` of a month is an estimate of the database. */
const Step = Schema.Struct({ relation: Schema.String, rows: Schema.Finite })
const decodeSteps = Schema.decodeUnknownEffect(Schema.Array(Step))

/**
 * Removes one partition, or up to 5,000 rows, that arrived at least `days` days ago, and returns what. Returns nothing when
 * all is removed. It fails when a partition is read or written for half a second on end; the next try may succeed.
 */
export const pruneStep = (sql: SqlClient.SqlClient, days: number) =>
  timeoutDetached("10 seconds")(
    sql`SELECT relation, removed::float8 AS rows FROM prune_audit(now() - ${days}::float8 * interval '1 day')`
  ).pipe(
    Effect.flatMap(decodeSteps),
    Effect.map((steps) => steps.at(0))
  )

const make = Effect.fnUntraced(function* ({ everyS = 3600, retentionDays }: AuditMonthsOptions) {
  const pg = yield* PgClient.PgClient
  const pace = jittered(everyS * 1000)
  const prepare = timeoutDetached("10 seconds")(pg`SELECT prepare_audit_months()`)
  yield* background("audit_months", prepare, pace)
  if (retentionDays === undefined) return
  const prune = Effect.gen(function* () {
    for (;;) {
      const step = yield* pruneStep(pg, retentionDays)
      if (step === undefined) return
      yield* Effect.logInfo("old audit rows removed", { table: step.relation, rows: step.rows })
      yield* Effect.sleep("200 millis")
    }
  })
  yield* background("audit_retention", prune, pace)
})

export const layerAuditMonths = (
  options: AuditMonthsOptions = {}
): Layer.Layer<never, never, PgClient.PgClient | Metrics> => Layer.effectDiscard(make(options))
