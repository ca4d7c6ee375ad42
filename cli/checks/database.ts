/** Checks of the database: connection, encryption, clock, schema, durability and rights. */
import { Effect, Schema } from "effect"
import { SqlClient } from "effect/sql"
import { knownVersion, planMigrations } from "../../src/infra/Migrations.ts"
import { probeWrites } from "../../src/infra/Postgres.ts"
import { oneRow } from "../../src/infra/rows.ts"
import { timeoutDetached } from "../../src/infra/time.ts"
import { type Check, clockCheck, failed, ok, storeFailed, tlsCheck, took, warning } from "./Check.ts"

const readFacts = oneRow({
  version: Schema.String,
  epochMs: Schema.Finite,
  encrypted: Schema.Boolean,
  local: Schema.Boolean,
  superuser: Schema.Boolean,
  user: Schema.String,
  unsafe: Schema.Array(Schema.String),
  replica: Schema.Boolean
})

const readFailure = oneRow({ failure: Schema.NullOr(Schema.String) })
const undelivered = (failure: string) =>
  warning("budget warnings", `the last one: the receiver ${failure}`, 'try "tollgate test-alert"')

const facts = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  // The first statement also connects.
  yield* sql`SELECT 1`
  const [time, found] = yield* Effect.timed(
    readFacts(sql`
    SELECT current_setting('server_version') AS version,
      (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS "epochMs",
      coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS encrypted,
      coalesce(inet_server_addr() <<= '127.0.0.0/8' OR inet_server_addr() = '::1', true) AS local,
      coalesce((SELECT rolsuper FROM pg_roles WHERE rolname = current_user), false) AS superuser,
      current_user::text AS user,
      pg_is_in_recovery() AS replica,
      coalesce((SELECT array_agg(name ORDER BY name) FROM pg_settings
        WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'), '{}') AS unsafe`)
  )
  return { ...found, time, behindMs: Date.now() - found.epochMs }
}).pipe(timeoutDetached("5 seconds"))

const schemaCheck = Effect.map(planMigrations, ({ found, known, pending }): Check => {
  if (found === 0) return failed("schema", "the database has no tollgate schema", 'run "tollgate migrate"')
  if (pending.length > 0)
    return failed(
      "schema",
      `${found}, this version needs ${known}: ${pending.length} pending`,
      'run "tollgate migrate"'
    )
  return ok(
    "schema",
    found > knownVersion ? `${found}, newer than this version (${known}) and allowed` : String(found)
  )
})

const essential = Effect.gen(function* () {
  const found = yield* facts
  return {
    found,
    checks: [
      found.replica
        ? failed("database", "read-only: it is a standby", "name the primary in DATABASE_URL")
        : yield* Effect.match(timeoutDetached("5 seconds")(probeWrites(yield* SqlClient.SqlClient)), {
            onFailure: (error) => storeFailed("database", error),
            onSuccess: () => ok("database", `PostgreSQL ${found.version}, ${took(found.time)}`)
          }),
      yield* schemaCheck
    ]
  }
})

/** What became of the last warning of a budget. A schema without the table has its own check. */
const lastFailure = Effect.flatMap(SqlClient.SqlClient, (sql) =>
  readFailure(sql`
    SELECT (SELECT failure FROM budget_warnings WHERE tries > 0 ORDER BY found_at DESC LIMIT 1) AS failure`)
).pipe(
  timeoutDetached("5 seconds"),
  Effect.orElseSucceed(() => ({ failure: null }))
)

const unreachable = (error: unknown): ReadonlyArray<Check> => [storeFailed("database", error)]

/** Connection and schema. */
export const databaseStatus: Effect.Effect<ReadonlyArray<Check>, never, SqlClient.SqlClient> = Effect.match(
  essential,
  { onFailure: unreachable, onSuccess: ({ checks }) => checks }
)

/** All checks of the database. `own`: it is the one that `npm start` brought, which has one user. */
export const databaseChecks = (
  own: boolean
): Effect.Effect<ReadonlyArray<Check>, never, SqlClient.SqlClient> =>
  Effect.match(Effect.all([essential, lastFailure]), {
    onFailure: unreachable,
    onSuccess: ([{ checks, found }, { failure }]) => [
      ...checks,
      tlsCheck(
        "database TLS",
        "the database",
        found.encrypted,
        found.local,
        "add sslmode=verify-full to DATABASE_URL"
      ),
      clockCheck("database clock", found.behindMs),
      ...(failure === null ? [] : [undelivered(failure)]),
      found.superuser && !own
        ? warning(
            "database user",
            `${found.user} is a superuser`,
            "use the roles of deploy/postgres/roles.sql: the gateway and the commands need less"
          )
        : ok("database user", own ? "the gateway's own database" : `${found.user} is no superuser`),
      found.unsafe.length === 0
        ? ok("durability", "a committed row survives a crash of the database")
        : warning(
            "durability",
            `${found.unsafe.join(", ")} off: a crash of the database may lose audit rows`,
            "turn them on"
          )
    ]
  })
