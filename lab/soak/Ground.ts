/**
 * What the soak runs on: two replicas as an operator runs them, and between them and each thing they need a wire that
 * can go bad. The stores keep what they acknowledged when they are killed, as they do in production.
 */
import { Context, Effect, Layer, Redacted } from "effect"
import { layerRedis as layerRedisMeter } from "../../src/gates/meter/redis/RedisMeter.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { layerRedis } from "../../src/infra/Redis.ts"
import { layerPostgres as layerRegistry } from "../../src/admin/Registry.ts"
import { type Backend, makeBackend } from "./Backend.ts"
import { leaseS, makeReplica, prepare, type Replica } from "../scale/World.ts"
import { type FaultProxy, makeFaultProxy } from "../../test/support/FaultProxy.ts"
import { privateIn } from "../../test/support/invariants/leaks.ts"
import { secrets } from "../../test/support/invariants/Witness.ts"
import {
  durable,
  makePostgresClusterWith,
  type PostgresCluster
} from "../../test/support/servers/PostgresCluster.ts"
import { findRedis } from "../../test/support/servers/RedisBinary.ts"
import { makeRedisServer, type RedisServer } from "../../test/support/servers/RedisServer.ts"

export interface Printed {
  lines: number
  /** lines with a key in them, or with the model server's address; an operator may read where his stores are */
  readonly leaks: Array<string>
  /** lines that tell of a defect, or are no log lines at all */
  readonly complaints: Array<string>
}

export class Ground extends Context.Service<
  Ground,
  {
    readonly backend: Backend
    readonly postgres: PostgresCluster
    readonly redis: RedisServer
    readonly wires: Readonly<Record<"postgres" | "redis" | "backend", FaultProxy>>
    readonly replicas: readonly [Replica, Replica]
    readonly printed: Printed
    /** host:port of everything a client must not learn of */
    readonly addresses: ReadonlyArray<string>
  }
>()("lab/soak/Ground") {}

const restless = /"level":"(?:error|fatal)"/

/** Listens to one process: whole lines, each looked at once. */
const ear = (printed: Printed, addresses: ReadonlyArray<string>) => {
  let rest = ""
  return (text: string): void => {
    const lines = (rest + text).split("\n")
    rest = lines.pop() ?? ""
    for (const line of lines) {
      printed.lines += 1
      const leaks = privateIn(line, { secrets, addresses })
      if (leaks.length > 0) printed.leaks.push(`${leaks.join()}: ${line.slice(0, 400)}`)
      if (restless.test(line) || !line.startsWith("{")) printed.complaints.push(line.slice(0, 600))
    }
  }
}

const host = (port: number) => `127.0.0.1:${port}`

export const layerGround = Layer.unwrap(
  Effect.gen(function* () {
    const backend = yield* makeBackend
    const postgres = yield* makePostgresClusterWith(durable)
    const redis = yield* makeRedisServer(findRedis(), ["--appendonly", "yes", "--appendfsync", "everysec"])
    const database = layerPostgres({ url: postgres.socket("postgres"), statementTimeoutMs: 60_000 })
    yield* Effect.provide(prepare, database)
    const to = (port: number) => makeFaultProxy({ host: "127.0.0.1", port })
    const wires = {
      postgres: yield* to(postgres.port),
      redis: yield* to(redis.port),
      backend: yield* to(Number(new URL(backend.url).port))
    }
    const addresses = [
      new URL(backend.url).host,
      host(postgres.port),
      host(redis.port),
      ...Object.values(wires).map(({ port }) => host(port))
    ]
    const printed: Printed = { lines: 0, leaks: [], complaints: [] }
    const url = new URL(Redacted.value(postgres.url("postgres")))
    url.port = String(wires.postgres.port)
    const env = {
      NODE_ENV: "production",
      DATABASE_URL: url.href,
      REDIS_URL: `redis://${host(wires.redis.port)}`,
      BACKEND_URL: `http://${host(wires.backend.port)}`,
      LOG_LEVEL: "info",
      MEMORY_MAX_BYTES: "536870912",
      CONCURRENCY_LEASE_S: String(leaseS),
      MODEL_DISCOVERY_REFRESH_S: "2",
      BREAKER_OPEN_MS: "2000",
      BACKEND_FIRST_BYTE_TIMEOUT_MS: "5000",
      BACKEND_IDLE_TIMEOUT_MS: "4000"
    }
    const models = [new URL(backend.url).host, host(wires.backend.port)]
    const replica = Effect.suspend(() => makeReplica(env, ear(printed, models)))
    const replicas = [yield* replica, yield* replica] as const
    return Layer.mergeAll(
      Layer.succeed(Ground, { addresses, backend, postgres, printed, redis, replicas, wires }),
      layerRegistry({ namespace: "tg_", defaults: { rpm: 60, tpm: 100_000, concurrent: 4 } }),
      layerRedisMeter({ leaseS }).pipe(
        Layer.provide(layerRedis({ url: Redacted.make(redis.url), commandTimeoutMs: 2000 }))
      )
    ).pipe(Layer.provideMerge(database))
  })
)
