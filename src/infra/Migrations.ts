/**
 * Brings the database schema up to date, and checks its version.
 *
 * Expand, then contract: a migration only adds, so that the previous version runs on the new schema, and an upgrade can be
 * taken back. The statements of a released migration never change. A program must not run on a schema that is older than it
 * knows, or that excludes it: call `assertSchema`.
 */
import { Data, Effect, Schedule, Schema, Struct } from "effect"
import { SqlClient } from "effect/sql"
import * as Migrator from "effect/sql/Migrator"
import { isSqlError } from "effect/sql/SqlError"
import schema from "../../migrations/0001_schema.ts"
import userRules from "../../migrations/0002_user_rules.ts"
import aliasDefaults from "../../migrations/0003_alias_defaults.ts"
import questions from "../../migrations/0004_questions.ts"
import timeZone from "../../migrations/0005_time_zone.ts"
import modelRules from "../../migrations/0006_model_rules.ts"
import budgetWarnings from "../../migrations/0007_budget_warnings.ts"
import modelWarnings from "../../migrations/0008_model_warnings.ts"
import { oneRow } from "./rows.ts"
import { timeoutDetached } from "./time.ts"

/** Every migration, by the name of its file. A test compares the list with the folder. */
export const migrations = {
  "0001_schema": schema,
  "0002_user_rules": userRules,
  "0003_alias_defaults": aliasDefaults,
  "0004_questions": questions,
  "0005_time_zone": timeZone,
  "0006_model_rules": modelRules,
  "0007_budget_warnings": budgetWarnings,
  "0008_model_warnings": modelWarnings
}

const names = Struct.keys(migrations)

const table = "schema_migrations"

const idOf = (name: string): number => Number(name.split("_")[0])

/** The id of the newest migration of this version. */
export const knownVersion = Math.max(...names.map(idOf))

/**
 * The oldest version of the program that may run on the schema of this version, as the id of its newest migration. The schema has it
 * (`schema_migrations.minimum_version`), because an old version cannot know what came after it. Raise it
 * only with a migration that removes or changes something that this old version uses (contract), and say so in the
 * CHANGELOG, because a rollback cannot go back beyond it. The migration that raises it to 2 drops `model_pins`: only version 1.0.0
 * uses that table.
 */
export const minimumVersion = 1

/** The migrations failed, or the version of the schema could not be read. */
export class MigrationFailed extends Data.TaggedError("MigrationFailed")<{ readonly cause: unknown }> {
  override get message(): string {
    return "the database schema could not be read or brought up to date"
  }
}

/** This program may not run on the schema. `found` is 0 when the database has no schema. */
export class SchemaMismatch extends Data.TaggedError("SchemaMismatch")<{
  readonly found: number
  readonly expected: number
  readonly minimum: number
}> {
  override get message(): string {
    return this.found < this.expected
      ? `the database schema is older than this build (${this.found}, expected ${this.expected}): run "tollgate migrate"`
      : `the database schema (${this.found}) needs a newer tollgate (this one knows ${this.expected}, at least ${this.minimum} is needed): run that, or restore a backup`
  }
}

/**
 * The id of the advisory lock for migrations: any fixed number. Processes that start at once take turns, so each migration runs
 * once, in a transaction of its own.
 */
const lockId = 7_309_453

/**
 * How long a migration waits for a lock of a table, because all later statements of the gateways queue behind it. Then the migration
 * is rolled back and tried again. It is less than Postgres waits before it ends a deadlock (1 s), so that a migration gives way and
 * no gateway's statement does.
 */
const lockTimeout = "500ms"
const lockTries = 40

/** Another process migrates. */
class AnotherMigrates extends Data.TaggedError("AnotherMigrates")<{}> {}

/** Five minutes, a tenth of a second each. */
const turnTries = 3000

/** The error of the statement, not of the migrator, which hides it. */
const causeOf = (error: unknown): unknown =>
  error instanceof Migrator.MigrationError && error.cause !== undefined ? error.cause : error

const lostLock = (error: unknown): boolean => {
  const cause = causeOf(error)
  return isSqlError(cause) && ["LockTimeoutError", "DeadlockError"].includes(cause.reason._tag)
}

/** The newest migration of the schema (0: there is none), and the oldest program that may run on it. */
const readSchema = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  const exists = yield* sql`SELECT 1 AS found WHERE to_regclass(${table}) IS NOT NULL`
  if (exists.length === 0) return { found: 0, minimum: 0 }
  return yield* oneRow({ found: Schema.Int, minimum: Schema.Int })(
    sql`SELECT coalesce(max(migration_id), 0) AS found, coalesce(max(minimum_version), 0) AS minimum FROM ${sql(table)}`
  )
}).pipe(Effect.mapError((cause) => new MigrationFailed({ cause })))

/** What `migrate` would do. */
export interface MigrationPlan {
  /** the newest migration of the schema now; 0: there is no schema */
  readonly found: number
  /** the newest migration of this program */
  readonly known: number
  readonly pending: ReadonlyArray<keyof typeof migrations>
  /** the oldest program, by its newest migration, that may run on the schema afterwards */
  readonly minimum: number
}

/** Reads only. */
export const planMigrations: Effect.Effect<MigrationPlan, MigrationFailed, SqlClient.SqlClient> = Effect.map(
  readSchema,
  ({ found, minimum }) => ({
    found,
    known: knownVersion,
    pending: names.filter((name) => idOf(name) > found),
    minimum: found > knownVersion ? minimum : minimumVersion
  })
)

/** Runs one migration, and states which versions may run on the schema then. */
const runOne = Effect.fnUntraced(function* (name: keyof typeof migrations) {
  const sql = yield* SqlClient.SqlClient
  const loader = Migrator.fromRecord({ [name]: migrations[name] })
  const ran = yield* Migrator.make({})({ loader, table })
  yield* sql`UPDATE ${sql(table)} SET minimum_version = ${minimumVersion} WHERE migration_id = ${idOf(name)}`
  return ran.map(() => name)
})

/**
 * Runs the pending migrations and returns their names. A schema that is newer than this program does not change.
 */
export const migrate: Effect.Effect<ReadonlyArray<string>, MigrationFailed, SqlClient.SqlClient> = Effect.gen(
  function* () {
    const sql = yield* SqlClient.SqlClient
    const locked = <A, E>(work: Effect.Effect<A, E, SqlClient.SqlClient>) =>
      Effect.gen(function* () {
        // A migration may take longer than a request may.
        yield* sql`SET LOCAL statement_timeout = '300s'`
        yield* sql`SET LOCAL idle_in_transaction_session_timeout = '300s'`
        yield* sql`SET LOCAL lock_timeout = ${sql.literal(`'${lockTimeout}'`)}`
        // Who waits in a transaction keeps a snapshot, for which a build of an index would wait.
        const [mine] = yield* sql`SELECT 1 AS mine WHERE pg_try_advisory_xact_lock(${lockId})`
        return mine === undefined ? yield* new AnotherMigrates() : yield* work
      }).pipe(
        sql.withTransaction,
        Effect.retry({
          while: (error) => error instanceof AnotherMigrates,
          schedule: Schedule.spaced("100 millis"),
          times: turnTries
        }),
        Effect.retry({ while: lostLock, schedule: Schedule.spaced("2 seconds"), times: lockTries }),
        Effect.mapError((error) => new MigrationFailed({ cause: causeOf(error) }))
      )
    const { pending } = yield* planMigrations
    const ran = yield* Effect.forEach(pending, (name) => locked(runOne(name)))
    return ran.flat()
  }
)

/**
 * Succeeds when this program may run on the schema: it has all migrations of this program, and does not exclude it.
 */
export const assertSchema: Effect.Effect<void, MigrationFailed | SchemaMismatch, SqlClient.SqlClient> =
  Effect.gen(function* () {
    const { found, minimum } = yield* timeoutDetached("5 seconds")(readSchema).pipe(
      Effect.mapError((error) =>
        error._tag === "TimeoutError" ? new MigrationFailed({ cause: error }) : error
      )
    )
    const isExcluded = found > knownVersion && minimum > knownVersion
    if (found < knownVersion || isExcluded) {
      return yield* new SchemaMismatch({ found, expected: knownVersion, minimum })
    }
  })
