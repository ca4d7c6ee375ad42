/** Who takes part, in front of one and the same backend. */
import { Effect, Layer, Redacted } from "effect"
import { migrate } from "../../src/infra/Migrations.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import { durable, makePostgresClusterWith } from "../../test/support/servers/PostgresCluster.ts"
import { findRedis } from "../../test/support/servers/RedisBinary.ts"
import { makeRedisServer } from "../../test/support/servers/RedisServer.ts"
import { file, processOn, type Served, serve } from "./processes.ts"

export type ContenderName = "floor" | "floor with stores" | "tollgate" | "bifrost"

export interface Contender extends Served {
  readonly name: ContenderName
  /** what stands before the name of a model */
  readonly prefix?: string
  /** one that may do anything */
  readonly key: string
  /** the processes of its Postgres and its Redis */
  readonly stores?: ReadonlyArray<number>
}

export const nobody = "nonsense"
export const most = 2_000_000_000

/** A durable Postgres and a Redis, with a key that may do anything. */
export const makeStores = Effect.gen(function* () {
  const cluster = yield* makePostgresClusterWith(durable)
  const redis = yield* makeRedisServer(findRedis())
  const database = layerPostgres({ url: cluster.socket("postgres") })
  yield* Effect.provide(migrate, database)
  const key = yield* Effect.gen(function* () {
    const registry = yield* Registry
    const limits = { rpm: most, tpm: most, concurrent: 100_000 }
    yield* registry.createTenant({ name: "bench", allowAllModels: true, ...limits })
    const good = yield* registry.createKey({ tenant: "bench", name: "good" })
    yield* registry.changeKey(good.key.prefix, { budgetDaily: 9e15, budgetMonthly: 9e15, budgetTotal: 9e15 })
    return good.secret
  }).pipe(
    Effect.provide(Layer.provide(layerRegistry({ defaults: { rpm: 1, tpm: 1, concurrent: 1 } }), database))
  )
  return {
    databaseUrl: Redacted.value(cluster.url("postgres")),
    redisUrl: redis.url,
    key,
    processes: [processOn(cluster.port), processOn(redis.port)]
  }
})

export type Stores = Effect.Success<typeof makeStores>

export const backend = serve("1", [file("stub.ts")], {})

/** node:http and undici with no logic at all. */
export const floor = (backendUrl: string) =>
  Effect.map(
    serve("0", [file("floor.ts")], { BACKEND_URL: backendUrl }, { idleS: 2 }),
    (served): Contender => ({
      ...served,
      name: "floor",
      key: nobody
    })
  )

/** The floor with a row and a count before the call and after it: what a durable record costs without any logic. */
export const floorWithStores = (backendUrl: string, stores: Stores) =>
  Effect.map(
    serve(
      "0",
      [file("floorWithStores.ts")],
      {
        NODE_ENV: "production",
        MALLOC_ARENA_MAX: "1",
        DATABASE_URL: stores.databaseUrl,
        REDIS_URL: `${stores.redisUrl}/2`,
        BACKEND_URL: backendUrl
      },
      { idleS: 2 }
    ),
    (served): Contender => ({
      ...served,
      name: "floor with stores",
      stores: stores.processes,
      key: nobody
    })
  )

/** What is started: `TOLLGATE_MAIN`, or else what `npm start` starts. */
const program = process.env["TOLLGATE_MAIN"] ?? file("../../build/start.js")

export interface TollgateOptions {
  /** where V8 leaves a CPU profile */
  readonly profile?: string | undefined
  /** how long it is left alone before its memory is read; default not at all */
  readonly idleS?: number
}

/** With everything on. */
export const tollgate = (backendUrl: string, stores: Stores, { profile, idleS = 0 }: TollgateOptions = {}) =>
  Effect.map(
    serve(
      "0",
      [...(profile === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${profile}`]), program],
      {
        NODE_ENV: "production",
        MALLOC_ARENA_MAX: "1",
        DATABASE_URL: stores.databaseUrl,
        REDIS_URL: stores.redisUrl,
        BACKEND_URL: backendUrl,
        SHUTDOWN_DRAIN_MS: "0",
        NUM_PREDICT_CAP: "20000",
        LOG_LEVEL: "error"
      },
      { gently: profile !== undefined, idleS }
    ),
    (served): Contender => ({
      ...served,
      name: "tollgate",
      key: stores.key,
      stores: stores.processes
    })
  )
