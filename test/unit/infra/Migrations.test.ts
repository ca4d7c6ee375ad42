import { readdirSync } from "node:fs"
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { assertSchema, knownVersion, migrate, migrations } from "../../../src/infra/Migrations.ts"
import { layerPostgres } from "../../../src/infra/Postgres.ts"
import { blocks, readPaper } from "../../support/Paper.ts"
import { layerTestDatabase, TestDatabase, TestPostgres } from "../../support/TestPostgres.ts"

const empty = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`DROP SCHEMA public CASCADE`
  yield* sql`CREATE SCHEMA public`
})

it("lists every file of the migrations folder, and nothing else", () => {
  const files = readdirSync(new URL("../../../migrations", import.meta.url))
  assert.deepStrictEqual(
    files.map((file) => file.replace(/\.ts$/, "")).sort(),
    Object.keys(migrations).sort()
  )
})

it.live("brings an empty database up to date, once", () =>
  Effect.gen(function* () {
    yield* empty
    assert.deepStrictEqual(yield* migrate, Object.keys(migrations))
    assert.deepStrictEqual(yield* migrate, [])
    yield* assertSchema
  }).pipe(Effect.provide(TestPostgres))
)

it.live("lets processes that start at once take turns", () =>
  Effect.gen(function* () {
    yield* empty
    const { socket } = yield* TestDatabase
    const another = migrate.pipe(
      Effect.provide(Layer.fresh(layerPostgres({ url: socket, maxConnections: 1 })))
    )
    const runs = yield* Effect.all([another, another, another, another], { concurrency: "unbounded" })
    assert.deepStrictEqual(runs.flat(), Object.keys(migrations))
    yield* assertSchema
  }).pipe(Effect.provide(TestPostgres))
)

it.live("refuses a database that has no schema, an older one, and a newer one", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`INSERT INTO schema_migrations (migration_id, name) VALUES (${knownVersion + 1}, 'tomorrow')`
    const newer = yield* Effect.flip(assertSchema)
    assert.match(newer.message, /newer than this build/)
    assert.deepStrictEqual(yield* migrate, [])
    yield* sql`DELETE FROM schema_migrations`
    assert.match((yield* Effect.flip(assertSchema)).message, /run "tollgate migrate"/)
    yield* empty
    assert.match((yield* Effect.flip(assertSchema)).message, /older than this build/)
  }).pipe(Effect.provide(TestPostgres))
)

it.live("builds the log's index by key, unless the operator has, and anew where that was interrupted", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    const index = Effect.map(
      sql<{ readonly id: number; readonly valid: boolean }>`
        SELECT indexrelid::int AS id, indisvalid AS valid FROM pg_index
        WHERE indexrelid = 'audit_log_key'::regclass`,
      ([row]) => row
    )
    const again = Effect.andThen(sql`DELETE FROM schema_migrations WHERE migration_id >= 4`, migrate)
    const built = yield* index
    assert.isTrue(built?.valid)
    yield* again
    assert.deepStrictEqual(yield* index, built)
    yield* sql`UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'audit_log_key'::regclass`
    yield* again
    const anew = yield* index
    assert.isTrue(anew?.valid)
    assert.notStrictEqual(anew?.id, built?.id)
  }).pipe(Effect.provide(TestPostgres))
)

it.live("lets nobody read everybody's rows to see what one key did", () =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient
    yield* sql`
      INSERT INTO audit_log (request_id, arrived_at, key_prefix, method, endpoint, streamed, tokens_in, tokens_out,
        status, latency_ms, client_ip)
      SELECT gen_random_uuid(), now() - n * interval '1 second', 'tg_' || lpad((n % 100)::text, 9, '0'), 'POST',
        '/api/chat', true, 1, 1, 200, 1, '::1'
      FROM generate_series(1, 10000) AS n`
    yield* sql`ANALYZE audit_log`
    const asked = blocks(readPaper("docs/operations.md"), "sql").filter((text) =>
      text.includes("key_prefix =")
    )
    assert.strictEqual(asked.length, 1)
    for (const query of asked) {
      const plan = JSON.stringify(yield* sql.unsafe(`EXPLAIN (FORMAT JSON) ${query}`))
      assert.include(plan, "audit_log_key")
      assert.notInclude(plan, '"Sort"')
    }
  }).pipe(Effect.provide(TestPostgres))
)

it.live("builds the client while the database is down, and fails in time when asked", () =>
  Effect.gen(function* () {
    const { socket } = yield* TestDatabase
    const nowhere = layerPostgres({
      url: { ...socket, path: `${socket.path}.none` },
      connectTimeout: "500 millis"
    })
    const failed = yield* Effect.flip(assertSchema.pipe(Effect.provide(nowhere)))
    assert.strictEqual(failed._tag, "MigrationFailed")
  }).pipe(Effect.provide(layerTestDatabase))
)
