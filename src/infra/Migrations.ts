/**
 * Brings the database schema up to date, and checks its version.
 *
 * *Details* Each pending migration runs in a transaction of its own, so that its locks end with it. An advisory lock is taken
 * before anything is read, so processes that start at once take turns, and each migration runs once. The list below is
 * written by hand, so that each migration is type-checked and none is added by accident. A test compares it with the folder.
 *
 * A migration waits for a lock of a table for half a second at most, because all later statements of the gateways queue behind
 * it. Then it is rolled back and tried again, for two minutes.
 *
 * Expand, then contract: a migration only adds, so that the previous version runs on the new schema, and an upgrade can be
 * taken back. A later release may remove what `minimumVersion` and newer versions no longer use. The schema states in
 * `schema_migrations.minimum_version` which versions may run on it, because an old version cannot know what came after it.
 *
 * *Gotchas* The statements of a released migration never change. A program must not run on a schema that is older than it
 * knows, or that excludes it: call `assertSchema`.
 */
import { Data, Effect, Schedule, Schema, Struct } from "effect"
import { SqlClient, SqlSchema } from "effect/sql"
import * as Migrator from "effect/sql/Migrator"
import { isSqlError, type SqlError } from "effect/sql/SqlError"
import { buildConcurrently, type ConcurrentIndex } from "./concurrentIndex.ts"
import initial from "../../migrations/0001_initial.ts"
import promptLogByKey from "../../migrations/0002_prompt_log_by_key.ts"
import revocationsByOthers from "../../migrations/0003_revocations_by_others.ts"
import auditByKey from "../../migrations/0004_audit_by_key.ts"
import auditCorrections from "../../migrations/0005_audit_corrections.ts"
import auditRepeats from "../../migrations/0006_audit_repeats.ts"
import sealingSecrets from "../../migrations/0007_sealing_secrets.ts"
import queue from "../../migrations/0008_queue.ts"
import requestFacts from "../../migrations/0009_request_facts.ts"
import replicas from "../../migrations/0010_replicas.ts"
import usageByModel from "../../migrations/0011_usage_by_model.ts"
import auditCutoff from "../../migrations/0012_audit_cutoff.ts"
import auditValidated, { completedIndex } from "../../migrations/0013_audit_validated.ts"
import auditPartitions from "../../migrations/0014_audit_partitions.ts"
import sharedBudgets from "../../migrations/0015_shared_budgets.ts"
import budgetWarnings from "../../migrations/0016_budget_warnings.ts"
import auditRowTypes from "../../migrations/0017_audit_row_types.ts"

/** Every migration, by the name of its file. */
export const migrations = {
  "0001_initial": initial,
  "0002_prompt_log_by_key": promptLogByKey,
  "0003_revocations_by_others": revocationsByOthers,
  "0004_audit_by_key": auditByKey,
  "0005_audit_corrections": auditCorrections,
  "0006_audit_repeats": auditRepeats,
  "0007_sealing_secrets": sealingSecrets,
  "0008_queue": queue,
  "0009_request_facts": requestFacts,
  "0010_replicas": replicas,
  "0011_usage_by_model": usageByModel,
  "0012_audit_cutoff": auditCutoff,
  "0013_audit_validated": auditValidated,
  "0014_audit_partitions": auditPartitions,
  "0015_shared_budgets": sharedBudgets,
  "0016_budget_warnings": budgetWarnings,
  "0017_audit_row_types": auditRowTypes
}

/** Indexes of large tables. They are built before the migration, because writers would wait for a build inside it. */
const builtBefore: { readonly [N in keyof typeof migrations]?: ConcurrentIndex } = {
  "0013_audit_validated": completedIndex
}

const names = Struct.keys(migrations)

const table = "schema_migrations"

const idOf = (name: string): number => Number(name.split("_")[0])

/** The id of the newest migration of this version. */
export const knownVersion = Math.max(...names.map(idOf))

/**
 * The oldest version of the program that may run on the schema of this version, as the id of its newest migration. Raise it
 * only with a migration that removes or changes something that this old version uses (contract), and say so in the
 * CHANGELOG, because a rollback cannot go back beyond it.
 */
export const minimumVersion = 8

/** The migrations failed, or the version of the schema could not be read. */
export class MigrationFailed extends Data.TaggedError("MigrationFailed")<{ readonly cause: unknown }> {
  override get message(): string {
    return "the database schema could not be read or brought up to date"
  }
}

/** This program may not run on the schema. `found` 0: there is no schema at all. `minimum` 0: the schema does not say. */
export class SchemaMismatch extends Data.TaggedError("SchemaMismatch")<{
  readonly found: number
  readonly expected: number
  readonly minimum: number
}> {
  override get message(): string {
    return this.found < this.expected
      ? `the database schema is older than this build (${this.found}, expected ${this.expected}): run "tollgate migrate"`
      : `the database schema (${this.found}) needs a newer tollgate (this one knows ${this.expected}${this.minimum === 0 ? "" : `, at least ${this.minimum} is needed`}): run that, or restore a backup`
  }
}

/** Runs the pending migrations up to the one of that name. */
const runUpTo = (last: string) =>
  Migrator.make({})({
    loader: Migrator.fromRecord(
      Object.fromEntries(Object.entries(migrations).filter(([name]) => name <= last))
    ),
    table
  })

/** The id of the advisory lock for migrations: any fixed number. */
const lockId = 7_309_453

/** Less than Postgres waits before it ends a deadlock (1 s), so that a migration gives way and no gateway's statement does. */
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

const Found = Schema.Struct({ found: Schema.Int, minimum: Schema.Int })

/** The newest migration of the schema (0: there is none), and the oldest program that may run on it (0: it does not say). */
const readSchema = (sql: SqlClient.SqlClient): Effect.Effect<typeof Found.Type, SqlError | MigrationFailed> =>
  Effect.gen(function* () {
    const exists = yield* sql`SELECT 1 AS found WHERE to_regclass(${table}) IS NOT NULL`
    if (exists.length === 0) return { found: 0, minimum: 0 }
    const newest = SqlSchema.findOne({
      Request: Schema.Void,
      Result: Found,
      // As JSON, because the column is missing until a version that knows it has run `migrate`.
      execute: () => sql`
        SELECT coalesce(max(migration_id), 0) AS found,
          coalesce(max((to_jsonb(m) ->> 'minimum_version')::integer), 0) AS minimum
        FROM ${sql(table)} m`
    })
    return yield* newest(undefined).pipe(Effect.mapError((cause) => new MigrationFailed({ cause })))
  })

/** What `migrate` would do. */
export interface MigrationPlan {
  /** the newest migration of the schema now; 0: there is no schema */
  readonly found: number
  /** the newest migration of this program */
  readonly known: number
  readonly pending: ReadonlyArray<keyof typeof migrations>
  /** the oldest program, by its newest migration, that may run on the schema afterwards; 0: the schema does not say */
  readonly minimum: number
}

/** Reads only. */
export const planMigrations: Effect.Effect<MigrationPlan, MigrationFailed, SqlClient.SqlClient> = Effect.gen(
  function* () {
    const sql = yield* SqlClient.SqlClient
    const { found, minimum } = yield* readSchema(sql)
    return {
      found,
      known: knownVersion,
      pending: names.filter((name) => idOf(name) > found),
      minimum: found > knownVersion ? minimum : minimumVersion
    }
  }
).pipe(
  Effect.mapError((cause) => (cause._tag === "MigrationFailed" ? cause : new MigrationFailed({ cause })))
)

/** The schema says which versions may run on it, unless it is newer than this program. */
const stateMinimum = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const { found } = yield* readSchema(sql)
  if (found !== knownVersion) return
  yield* sql`ALTER TABLE ${sql(table)} ADD COLUMN IF NOT EXISTS minimum_version integer`
  yield* sql`UPDATE ${sql(table)} SET minimum_version = ${minimumVersion}
    WHERE migration_id = ${knownVersion} AND minimum_version IS DISTINCT FROM ${minimumVersion}`
})

/**
 * Runs the pending migrations and returns their names. Then the schema states which versions may run on it. A schema that
 * is newer than this program does not change.
 */
export const migrate: Effect.Effect<ReadonlyArray<string>, MigrationFailed, SqlClient.SqlClient> = Effect.gen(
  function* () {
    const sql = yield* SqlClient.SqlClient
    const tried = <A, E, R>(work: Effect.Effect<A, E, R>) =>
      Effect.retry(work, { while: lostLock, schedule: Schedule.spaced("2 seconds"), times: lockTries })
    const locked = <A, E>(work: Effect.Effect<A, E, SqlClient.SqlClient>) =>
      sql
        .withTransaction(
          Effect.gen(function* () {
            // A migration may take longer than a request may.
            yield* sql`SET LOCAL statement_timeout = '300s'`
            yield* sql`SET LOCAL idle_in_transaction_session_timeout = '300s'`
            yield* sql`SET LOCAL lock_timeout = ${sql.literal(`'${lockTimeout}'`)}`
            // Not by waiting in a transaction: a concurrent build of an index would wait for it.
            const [mine] = yield* sql`SELECT 1 AS mine WHERE pg_try_advisory_xact_lock(${lockId})`
            return mine === undefined ? yield* new AnotherMigrates() : yield* work
          })
        )
        .pipe(
          Effect.retry({
            while: (error) => error instanceof AnotherMigrates,
            schedule: Schedule.spaced("100 millis"),
            times: turnTries
          }),
          tried
        )
    const { pending } = yield* planMigrations
    const completed = yield* Effect.forEach(pending, (name) => {
      const index = builtBefore[name]
      return Effect.andThen(
        index === undefined ? Effect.void : buildConcurrently(index),
        locked(runUpTo(name))
      )
    })
    yield* locked(stateMinimum(sql))
    return completed.flat().map(([id, name]) => `${String(id).padStart(4, "0")}_${name}`)
  }
).pipe(
  Effect.mapError((error) =>
    error._tag === "MigrationFailed" ? error : new MigrationFailed({ cause: causeOf(error) })
  )
)

/**
 * Succeeds when this program may run on the schema: it has all migrations of this program, and does not exclude it.
 */
export const assertSchema: Effect.Effect<void, MigrationFailed | SchemaMismatch, SqlClient.SqlClient> =
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const { found, minimum } = yield* readSchema(sql).pipe(
      Effect.timeout("5 seconds"),
      Effect.mapError((cause) => (cause._tag === "MigrationFailed" ? cause : new MigrationFailed({ cause })))
    )
    const isExcluded = found > knownVersion && (minimum === 0 || minimum > knownVersion)
    if (found < knownVersion || isExcluded) {
      return yield* new SchemaMismatch({ found, expected: knownVersion, minimum })
    }
  })
