/**
 * One Postgres cluster and one redis-server for the whole run, both real. Test files clone the migrated template
 * database and take a Redis database of their own (`TestPostgres.ts`, `TestRedis.ts`).
 */
import { Effect, Exit, Scope } from "effect"
import { SqlClient } from "effect/sql"
import type { TestProject } from "vitest/node"
import { migrate } from "../../../src/infra/Migrations.ts"
import { layerPostgres } from "../../../src/infra/Postgres.ts"
import { copyData, makePostgresCluster, testUser } from "./PostgresCluster.ts"
import { findRedis } from "./RedisBinary.ts"
import { makeRedisServer } from "./RedisServer.ts"

declare module "vitest" {
  interface ProvidedContext {
    readonly postgres: {
      readonly port: number
      readonly socketPath: string
      readonly username: string
      /** a migrated database that nobody may connect to; clone it */
      readonly template: string
      /** the data of a stopped cluster whose database `postgres` is migrated; copy them */
      readonly prepared: string
    }
    readonly redis: {
      readonly url: string
      /** empty with TEST_REDIS_URL: then `TestRedis.ts` looks for a server itself when one is asked for */
      readonly command: string
      readonly libraries: string
    }
  }
}

const template = "tollgate_template"

const servers = Effect.gen(function* () {
  const cluster = yield* makePostgresCluster
  yield* migrate.pipe(Effect.provide(layerPostgres({ url: cluster.socket("postgres"), maxConnections: 1 })))
  yield* cluster.stop
  const prepared = `${cluster.data}-prepared`
  yield* copyData(cluster.data, prepared)
  yield* cluster.start
  const admin = layerPostgres({
    url: cluster.socket("template1"),
    maxConnections: 1,
    statementTimeoutMs: 30_000
  })
  yield* Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`CREATE DATABASE ${sql(template)} TEMPLATE postgres`
  ).pipe(Effect.provide(admin))
  yield* Effect.flatMap(
    SqlClient.SqlClient,
    (sql) => sql`ALTER DATABASE ${sql(template)} WITH ALLOW_CONNECTIONS false`
  ).pipe(Effect.provide(admin))
  const given = process.env["TEST_REDIS_URL"]
  if (given !== undefined && given !== "") {
    return { cluster, prepared, redis: { url: given, command: "", libraries: "" } }
  }
  const binary = findRedis()
  const redis = yield* makeRedisServer(binary)
  return { cluster, prepared, redis: { url: redis.url, ...binary } }
})

export const setup = async (project: TestProject): Promise<() => Promise<void>> => {
  const scope = Scope.makeUnsafe()
  const stop = () => Effect.runPromise(Scope.close(scope, Exit.void))
  const started = await Effect.runPromise(
    servers.pipe(
      Scope.provide(scope),
      Effect.onError(() => Scope.close(scope, Exit.void))
    )
  )
  project.provide("postgres", {
    port: started.cluster.port,
    socketPath: started.cluster.socketPath,
    username: testUser,
    template,
    prepared: started.prepared
  })
  project.provide("redis", started.redis)
  return stop
}
