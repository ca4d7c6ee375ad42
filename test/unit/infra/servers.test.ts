import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import { SqlClient } from "effect/sql"
import { Redis } from "ioredis"
import { layerPrivatePostgres, TestCluster, TestPostgres } from "../../support/TestPostgres.ts"
import { layerPrivateRedis, layerTestRedis, TestRedis, TestRedisServer } from "../../support/TestRedis.ts"

const one = Effect.flatMap(SqlClient.SqlClient, (sql) => sql`SELECT 1 AS one`).pipe(
  Effect.timeout("500 millis")
)

it.live("when two tests ask for a database, then each has its own", () =>
  Effect.gen(function* () {
    const count = Effect.gen(function* () {
      const sql = yield* SqlClient.SqlClient
      yield* sql`INSERT INTO tenants (name, rpm, tpm, concurrent) VALUES ('a', 1, 1, 1)`
      return (yield* sql`SELECT name FROM tenants`).length
    }).pipe(Effect.provide(TestPostgres, { local: true }))
    assert.deepStrictEqual(yield* Effect.all([count, count]), [1, 1])
  })
)

it.live("when a private Postgres is frozen, killed or stopped, then it comes back with its data", () =>
  Effect.gen(function* () {
    const cluster = yield* TestCluster
    yield* one
    yield* cluster.pause
    assert.strictEqual((yield* Effect.flip(one))._tag, "TimeoutError")
    yield* cluster.resume
    yield* one.pipe(Effect.retry({ times: 5 }))
    yield* cluster.kill
    yield* Effect.flip(one)
    yield* cluster.start
    yield* one.pipe(Effect.retry({ times: 5 }))
    yield* cluster.stop
    yield* Effect.flip(one)
    yield* cluster.start
    yield* one.pipe(Effect.retry({ times: 5 }))
  }).pipe(Effect.provide(layerPrivatePostgres()))
)

const connected = (url: string) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const client = new Redis(url, { commandTimeout: 300, maxRetriesPerRequest: 0, retryStrategy: () => 20 })
      client.on("error", () => undefined)
      return client
    }),
    (client) => Effect.sync(() => client.disconnect())
  )

it.live("when a test asks for a Redis database, then it is empty", () =>
  Effect.gen(function* () {
    const use = Effect.gen(function* () {
      const client = yield* connected((yield* TestRedis).url)
      yield* Effect.promise(() => client.incr("n"))
      return yield* Effect.promise(() => client.incr("n"))
    }).pipe(Effect.provide(layerTestRedis, { local: true }))
    assert.deepStrictEqual(yield* Effect.all([use, use]), [2, 2])
  })
)

it.live("when a private Redis is frozen, killed and started again, then it is back on its port", () =>
  Effect.gen(function* () {
    const server = yield* TestRedisServer
    const client = yield* connected(server.url)
    const ping = Effect.tryPromise(() => client.ping())
    yield* ping
    yield* server.pause
    yield* Effect.flip(ping)
    yield* server.resume
    yield* server.kill
    yield* Effect.flip(ping)
    yield* server.start
    yield* ping.pipe(Effect.retry({ times: 20 }))
  }).pipe(Effect.provide(layerPrivateRedis()))
)
