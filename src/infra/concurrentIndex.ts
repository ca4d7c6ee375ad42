/** Builds an index while others write the table. A transaction cannot do it, so a migration cannot either. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { isSqlError } from "effect/sql/SqlError"

export interface ConcurrentIndex {
  readonly name: string
  readonly table: string
  /** the table and its columns, as in `CREATE INDEX … ON` */
  readonly definition: string
}

const State = Schema.Tuple([
  Schema.Struct({
    /** a partitioned table has no concurrent build; it has no rows when its index is made */
    plain: Schema.Boolean,
    exists: Schema.Boolean,
    valid: Schema.Boolean,
    building: Schema.Boolean
  })
])
const decodeState = Schema.decodeUnknownEffect(State)

/** SQLSTATE 42P07 and 23505: another process began to build it a moment ago. */
const isDuplicate = (error: unknown): boolean =>
  isSqlError(error) && /already exists|duplicate key/.test(String(error.reason.cause))

/**
 * Several processes may do it at once: one builds, the others wait. The invalid index of an interrupted build is built
 * anew. It takes as long as reading and sorting the table.
 */
export const buildConcurrently = Effect.fnUntraced(function* ({ definition, name, table }: ConcurrentIndex) {
  const sql = yield* SqlClient.SqlClient
  const connection = yield* sql.reserve
  const run = (statement: string) => connection.executeUnprepared(statement, [], undefined)
  // Without a connection there is nothing to reset.
  yield* Effect.acquireRelease(run("SET statement_timeout = 0"), () =>
    Effect.ignore(run("RESET statement_timeout"))
  )
  for (;;) {
    const [state] = yield* Effect.flatMap(
      connection.execute(
        `SELECT coalesce((SELECT relkind = 'r' FROM pg_class WHERE oid = to_regclass($2)), false) AS plain,
          to_regclass($1) IS NOT NULL AS exists,
          coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)), false) AS valid,
          EXISTS (SELECT FROM pg_stat_progress_create_index WHERE relid = to_regclass($2)) AS building`,
        [name, table],
        undefined
      ),
      decodeState
    )
    if (!state.plain || state.valid) return
    if (state.building) yield* Effect.sleep("500 millis")
    else if (state.exists) yield* run(`DROP INDEX CONCURRENTLY IF EXISTS ${name}`)
    else {
      yield* Effect.catchIf(
        run(`CREATE INDEX CONCURRENTLY ${name} ON ${definition}`),
        isDuplicate,
        () => Effect.void
      )
    }
  }
}, Effect.scoped)
