/** Reads of many rows. */
import { Effect } from "effect"
import type { SqlClient } from "effect/sql"

/**
 * Runs a transaction that reads many rows: the settings of a request's short statements would plan it badly and end it after
 * two seconds. `seconds` bounds each statement. A `snapshot` writes nothing, and all its statements see the same rows.
 */
export const largeRead =
  (sql: SqlClient.SqlClient) =>
  <A, E, R>(seconds: number, read: Effect.Effect<A, E, R>, options?: { readonly snapshot: boolean }) =>
    sql.withTransaction(
      Effect.gen(function* () {
        if (options?.snapshot === true) yield* sql`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY`
        yield* sql`SET LOCAL statement_timeout = ${sql.literal(String(seconds * 1000))}`
        yield* sql`SET LOCAL enable_seqscan = on`
        yield* sql`SET LOCAL enable_hashjoin = on`
        return yield* read
      })
    )
