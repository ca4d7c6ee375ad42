import { readdirSync } from "node:fs"
import { assert, it } from "@effect/vitest"
import { Effect, Layer, Struct } from "effect"
import { SqlClient } from "effect/sql"
import {
  assertSchema,
  knownVersion,
  migrate,
  migrations,
  minimumVersion,
  planMigrations
} from "../../../src/infra/Migrations.ts"
import { layerPostgres } from "../../../src/infra/Postgres.ts"
import { blocks, readPaper } from "../../support/Paper.ts"
import { layerTestDatabase, TestDatabase, TestPostgres } from "../../support/TestPostgres.ts"
import { testWith } from "../../support/testWith.ts"
import { sql } from "../../support/sql.ts"

const empty = Effect.gen(function* () {
  yield* sql`DROP SCHEMA public CASCADE`
  yield* sql`CREATE SCHEMA public`
})

it("when a file is in the migrations folder, then it is in the list, and nothing else is", () => {
  const files = readdirSync(new URL("../../../migrations", import.meta.url))
  assert.deepStrictEqual(
    files.map((file) => file.replace(/\.ts$/, "")).sort(),
    Object.keys(migrations).sort()
  )
})

const test = testWith(it.live, TestPostgres)

test("when a database is empty, then it is brought up to date, once", function* () {
  yield* empty
  assert.deepStrictEqual(yield* migrate, Object.keys(migrations))
  assert.deepStrictEqual(yield* migrate, [])
  yield* assertSchema
})

test("when several processes start at once, then they migrate one after another", function* () {
  yield* empty
  const { socket } = yield* TestDatabase
  const another = migrate.pipe(Effect.provide(Layer.fresh(layerPostgres({ url: socket, maxConnections: 1 }))))
  const runs = yield* Effect.all([another, another, another, another], { concurrency: "unbounded" })
  assert.deepStrictEqual(runs.flat().sort(), Object.keys(migrations))
  yield* assertSchema
})

test("when the schema is missing or older, then no program runs on it", function* () {
  yield* sql`DELETE FROM schema_migrations`
  assert.match((yield* Effect.flip(assertSchema)).message, /run "tollgate migrate"/)
  yield* empty
  assert.match((yield* Effect.flip(assertSchema)).message, /older than this build/)
  assert.deepStrictEqual(yield* planMigrations, {
    found: 0,
    known: knownVersion,
    pending: Struct.keys(migrations),
    minimum: minimumVersion
  })
})

test("when the schema is newer, then it runs the programs it admits, and no others", function* () {
  const [newest] = yield* sql`
      SELECT migration_id, minimum_version FROM schema_migrations ORDER BY migration_id DESC LIMIT 1`
  assert.deepStrictEqual({ ...newest }, { migration_id: knownVersion, minimum_version: minimumVersion })
  // What a later version writes that only added, and one that removed something.
  yield* sql`INSERT INTO schema_migrations (migration_id, name, minimum_version)
      VALUES (${knownVersion + 1}, 'tomorrow', ${minimumVersion})`
  yield* assertSchema
  assert.deepStrictEqual(yield* migrate, [])
  const plan = yield* planMigrations
  assert.deepStrictEqual([plan.found, plan.pending, plan.minimum], [knownVersion + 1, [], minimumVersion])
  yield* sql`INSERT INTO schema_migrations (migration_id, name, minimum_version)
      VALUES (${knownVersion + 2}, 'the day after', ${knownVersion + 1})`
  assert.match((yield* Effect.flip(assertSchema)).message, /needs a newer tollgate/)
  assert.deepStrictEqual(yield* migrate, [])
})

test("when an operator looks up one key, then the rows of others are not read", function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`
      INSERT INTO audit_log (request_id, arrived_at, key_prefix, method, endpoint, streamed, tokens_in, tokens_out,
        status, latency_ms, client_ip)
      SELECT gen_random_uuid(), now() - n * interval '1 second', 'tg_' || lpad((n % 100)::text, 9, '0'), 'POST',
        '/api/chat', true, 1, 1, 200, 1, '::1'
      FROM generate_series(1, 10000) AS n`
  yield* sql`ANALYZE audit_log`
  const asked = blocks(readPaper("docs/run.md"), "sql").filter((text) => text.includes("key_prefix ="))
  assert.strictEqual(asked.length, 1)
  for (const query of asked) {
    const plan = JSON.stringify(yield* sql.unsafe(`EXPLAIN (FORMAT JSON) ${query}`))
    assert.include(plan, "key_prefix_arrived_at_idx")
    assert.notInclude(plan, '"Sort"')
  }
})

testWith(it.live, layerTestDatabase)(
  "when the database is down, then the client is built and a query fails in time",
  function* () {
    const { socket } = yield* TestDatabase
    const nowhere = layerPostgres({
      url: { ...socket, path: `${socket.path}.none` },
      connectTimeout: "500 millis"
    })
    const failed = yield* Effect.flip(assertSchema.pipe(Effect.provide(nowhere)))
    assert.strictEqual(failed._tag, "MigrationFailed")
  }
)
