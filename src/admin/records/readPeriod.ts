/** The period that an operator means, by the clock of the database. */
import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { oneRow } from "../../infra/rows.ts"
import { InvalidValue } from "../Errors.ts"
import { type Bounds, type Moment, periodOf } from "./period.ts"

export const readPeriod = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  bounds: Bounds,
  fallback?: Moment
) {
  const { now } = yield* Effect.flatMap(sql`SELECT now() AS now`, oneRow({ now: Schema.Date }))
  return (
    periodOf(now, bounds, fallback) ??
    (yield* new InvalidValue({ field: "since", expected: "a time before --until" }))
  )
})
