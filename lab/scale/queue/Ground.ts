/** Replicas in front of a server with two slots, on one Postgres and one Redis. */
import { Array, Context, Effect, Layer, Redacted, type Scope } from "effect"
import { Redis } from "ioredis"
import { layerPostgres as layerRegistry } from "../../../src/admin/Registry.ts"
import { migrate } from "../../../src/infra/Migrations.ts"
import { layerPostgres } from "../../../src/infra/Postgres.ts"
import { makePostgresCluster } from "../../../test/support/servers/PostgresCluster.ts"
import { findRedis } from "../../../test/support/servers/RedisBinary.ts"
import { makeRedisServer } from "../../../test/support/servers/RedisServer.ts"
import { makeReplica, type Replica } from "../World.ts"
import { makeSlotServer, type SlotServer } from "./SlotServer.ts"

export const slots = 2

export class Ground extends Context.Service<
  Ground,
  {
    readonly backend: SlotServer
    /** a connection of our own */
    readonly redis: Redis
    /** requests that have a place or wait */
    readonly entries: Effect.Effect<number>
    /** starts the replicas; without `BACKEND_MAX_CONCURRENT` the model server queues by itself */
    readonly replicas: (
      env: Readonly<Record<string, string>>
    ) => Effect.Effect<readonly [Replica, ...Array<Replica>], unknown, Scope.Scope>
  }
>()("lab/scale/queue/Ground") {}

export const layerGround = (count: number) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const backend = yield* makeSlotServer(slots)
      const postgres = yield* makePostgresCluster
      const server = yield* makeRedisServer(findRedis())
      const database = layerPostgres({ url: postgres.socket("postgres") })
      yield* Effect.provide(migrate, database)
      const redis = yield* Effect.acquireRelease(
        Effect.sync(() => new Redis(server.url)),
        (client) => Effect.sync(() => client.disconnect())
      )
      const shared = {
        NODE_ENV: "production",
        DATABASE_URL: Redacted.value(postgres.url("postgres")),
        REDIS_URL: server.url,
        BACKEND_URL: backend.url,
        LOG_LEVEL: process.env["SCALE_LOG_LEVEL"] ?? "error"
      }
      const replicas = (env: Readonly<Record<string, string>>) =>
        Effect.forEach(Array.makeBy(count, String), () => makeReplica({ ...shared, ...env }), {
          concurrency: count
        })
      const entries = Effect.promise(() => redis.hlen("tollgate:{queue}:2:entries"))
      return Layer.mergeAll(
        Layer.succeed(Ground, { backend, redis, entries, replicas }),
        layerRegistry({ namespace: "tg_", defaults: { rpm: 60, tpm: 100_000, concurrent: 4 } })
      ).pipe(Layer.provideMerge(database))
    })
  )

/** A figure of Redis's INFO. */
export const infoOf = (redis: Redis, name: string): Effect.Effect<number> =>
  Effect.map(
    Effect.promise(() => redis.info()),
    (text) => Number(new RegExp(`^${name}:(\\d+)`, "m").exec(text)?.[1])
  )
