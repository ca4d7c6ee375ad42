/** Builds an index while others write the table. A transaction cannot do it, so a migration cannot either. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"

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

/** The id of the advisory lock: any fixed number. */
const lockId = 7_309_455

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
  // A lock of the session, and never waited for: the build would wait for a statement that waits.
  const tryLock = connection.execute("SELECT 1 WHERE pg_try_advisory_lock($1)", [lockId], undefined)
  const unlock = connection.execute("SELECT pg_advisory_unlock($1)", [lockId], undefined)
  const lock = Effect.gen(function* () {
    while ((yield* tryLock).length === 0) yield* Effect.sleep("200 millis")
  })
  yield* Effect.acquireRelease(lock, () => Effect.ignore(unlock), { interruptible: true })
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
    // An operator builds it by hand.
    if (state.building) yield* Effect.sleep("500 millis")
    else if (state.exists) yield* run(`DROP INDEX CONCURRENTLY IF EXISTS ${name}`)
    else yield* run(`CREATE INDEX CONCURRENTLY ${name} ON ${definition}`)
  }
}, Effect.scoped)
