import { readdirSync } from "node:fs"
import { assert, it } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { assertSchema, knownVersion, migrate, migrations } from "../../../src/infra/Migrations.ts"
import { layerPostgres } from "../../../src/infra/Postgres.ts"
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
