/**
 * Brings the database schema up to date, and checks its version.
 *
 * *Details* All pending migrations run in one transaction under an advisory lock. The lock is taken before anything is
 * read, so two processes that start at once take turns, and the second finds nothing to do. The list below is written by
 * hand, so that each migration is type-checked and none is added by accident. A test compares it with the folder.
 *
 * Expand, then contract: a migration only adds, so that the previous version runs on the new schema, and an upgrade can be
 * taken back. A later release may remove what `minimumVersion` and newer versions no longer use. The schema states in
 * `schema_migrations.minimum_version` which versions may run on it, because an old version cannot know what came after it.
 *
 * *Gotchas* The statements of a released migration never change. A program must not run on a schema that is older than it
 * knows, or that excludes it: call `assertSchema`.
 */
import { Data, Effect, Schema } from "effect"
import { SqlClient, SqlSchema } from "effect/sql"
import * as Migrator from "effect/sql/Migrator"
import type { SqlError } from "effect/sql/SqlError"
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
  "0010_replicas": replicas
}

const table = "schema_migrations"

const idOf = (name: string): number => Number(name.split("_")[0])

/** The id of the newest migration of this version. */
export const knownVersion = Math.max(...Object.keys(migrations).map(idOf))

/**
 * The oldest version of the program that may run on the schema of this version, as the id of its newest migration. Raise it
 * only with a migration that removes or changes something that this old version uses (contract), and say so in the
 * CHANGELOG: nobody can go back beyond it.
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

const runPending = Migrator.make({})({ loader: Migrator.fromRecord(migrations), table })

/** The id of the advisory lock for migrations: any fixed number. */
const lockId = 7_309_453

/**
 * Runs the pending migrations and returns their names. Then the schema states which versions may run on it. A schema that
 * is newer than this program does not change.
 */
export const migrate: Effect.Effect<ReadonlyArray<string>, MigrationFailed, SqlClient.SqlClient> = Effect.gen(
  function* () {
    const sql = yield* SqlClient.SqlClient
    const completed = yield* sql.withTransaction(
      Effect.gen(function* () {
        // A migration, or the wait for another process, may take longer than a request may.
        yield* sql`SET LOCAL statement_timeout = '300s'`
        yield* sql`SET LOCAL idle_in_transaction_session_timeout = '300s'`
        yield* sql`SELECT pg_advisory_xact_lock(${lockId})`
        const ran = yield* runPending
        const { found } = yield* readSchema(sql)
        if (found === knownVersion) {
          yield* sql`ALTER TABLE ${sql(table)} ADD COLUMN IF NOT EXISTS minimum_version integer`
          yield* sql`UPDATE ${sql(table)} SET minimum_version = ${minimumVersion}
            WHERE migration_id = ${knownVersion} AND minimum_version IS DISTINCT FROM ${minimumVersion}`
        }
        return ran
      })
    )
    return completed.map(([id, name]) => `${String(id).padStart(4, "0")}_${name}`)
  }
).pipe(Effect.mapError((cause) => new MigrationFailed({ cause })))

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
  readonly pending: ReadonlyArray<string>
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
      pending: Object.keys(migrations).filter((name) => idOf(name) > found),
      minimum: found > knownVersion ? minimum : minimumVersion
    }
  }
).pipe(
  Effect.mapError((cause) => (cause._tag === "MigrationFailed" ? cause : new MigrationFailed({ cause })))
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
