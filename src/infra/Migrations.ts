/**
 * Brings the database schema up to date, and checks its version.
 *
 * *Details* All pending migrations run in one transaction under an advisory lock. The lock is taken before anything is
 * read, so two processes that start at once take turns, and the second finds nothing to do. The list below is written by
 * hand, so that each migration is type-checked and none is added by accident. A test compares it with the folder.
 *
 * *Gotchas* The statements of a released migration never change. `serve` must not run on an older or newer schema than this
 * version knows: call `assertSchema`.
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

/** Every migration, by the name of its file. */
export const migrations = {
  "0001_initial": initial,
  "0002_prompt_log_by_key": promptLogByKey,
  "0003_revocations_by_others": revocationsByOthers,
  "0004_audit_by_key": auditByKey,
  "0005_audit_corrections": auditCorrections,
  "0006_audit_repeats": auditRepeats,
  "0007_sealing_secrets": sealingSecrets,
  "0008_queue": queue
}

const table = "schema_migrations"

/** The id of the newest migration of this version. */
export const knownVersion = Math.max(...Object.keys(migrations).map((name) => Number(name.split("_")[0])))

/** The migrations failed, or the version of the schema could not be read. */
export class MigrationFailed extends Data.TaggedError("MigrationFailed")<{ readonly cause: unknown }> {
  override get message(): string {
    return "the database schema could not be read or brought up to date"
  }
}

/** The schema has another version than this program. `found` 0: there is no schema at all. */
export class SchemaMismatch extends Data.TaggedError("SchemaMismatch")<{
  readonly found: number
  readonly expected: number
}> {
  override get message(): string {
    return this.found < this.expected
      ? `the database schema is older than this build (${this.found}, expected ${this.expected}): run "tollgate migrate"`
      : `the database schema is newer than this build (${this.found}, expected ${this.expected}): run a newer tollgate`
  }
}

const runPending = Migrator.make({})({ loader: Migrator.fromRecord(migrations), table })

/** The id of the advisory lock for migrations: any fixed number. */
const lockId = 7_309_453

/**
 * Runs the pending migrations and returns their names. A newer schema does not change; `assertSchema` fails on it.
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
        return yield* runPending
      })
    )
    return completed.map(([id, name]) => `${String(id).padStart(4, "0")}_${name}`)
  }
).pipe(Effect.mapError((cause) => new MigrationFailed({ cause })))

const Found = Schema.Struct({ found: Schema.Int })

/** The version of the schema; 0 when no migration has run. */
const version = (sql: SqlClient.SqlClient): Effect.Effect<number, SqlError | MigrationFailed> =>
  Effect.gen(function* () {
    const exists = yield* sql`SELECT 1 AS found WHERE to_regclass(${table}) IS NOT NULL`
    if (exists.length === 0) return 0
    const newest = SqlSchema.findOne({
      Request: Schema.Void,
      Result: Found,
      execute: () => sql`SELECT coalesce(max(migration_id), 0) AS found FROM ${sql(table)}`
    })
    return yield* newest(undefined).pipe(
      Effect.map((row) => row.found),
      Effect.mapError((cause) => new MigrationFailed({ cause }))
    )
  })

/** Succeeds only when the schema has exactly the version of this program. */
export const assertSchema: Effect.Effect<void, MigrationFailed | SchemaMismatch, SqlClient.SqlClient> =
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const found = yield* version(sql).pipe(
      Effect.timeout("5 seconds"),
      Effect.mapError((cause) => (cause._tag === "MigrationFailed" ? cause : new MigrationFailed({ cause })))
    )
    if (found !== knownVersion) return yield* new SchemaMismatch({ found, expected: knownVersion })
  })
