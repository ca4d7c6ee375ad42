/** Two replicas behind the shipped haproxy, and all they need behind wires that can go bad; Prometheus scrapes them. */
import { Context, Effect, Layer, Redacted, Schedule } from "effect"
import { layerPostgres as layerRegistry } from "../../src/admin/Registry.ts"
import { migrate } from "../../src/infra/Migrations.ts"
import { layerPostgres } from "../../src/infra/Postgres.ts"
import { makeSlotServer } from "../scale/queue/SlotServer.ts"
import { makeReplica, type Replica } from "../scale/World.ts"
import { type FaultProxy, makeFaultProxy } from "../../test/support/FaultProxy.ts"
import {
  durable,
  makePostgresClusterWith,
  type PostgresCluster
} from "../../test/support/servers/PostgresCluster.ts"
import { freePort } from "../../test/support/servers/processes.ts"
import { findRedis } from "../../test/support/servers/RedisBinary.ts"
import { makeRedisServer, type RedisServer } from "../../test/support/servers/RedisServer.ts"
import { balance } from "../haproxy.ts"
import { type FastPrometheus, makeFastPrometheus } from "./Prometheus.ts"

export class Ground extends Context.Service<
  Ground,
  {
    /** of haproxy */
    readonly url: string
    readonly replicas: readonly [Replica, Replica]
    readonly postgres: PostgresCluster
    readonly redis: RedisServer
    readonly wires: Readonly<Record<"postgres" | "redis" | "backend", FaultProxy>>
    readonly prometheus: FastPrometheus
    /** lines that the replicas wrote to their logs, and forgets them */
    readonly takeLog: () => ReadonlyArray<string>
  }
>()("lab/drill/Ground") {}

const host = (port: number) => `127.0.0.1:${port}`

export const layerGround = Layer.unwrap(
  Effect.gen(function* () {
    const backend = yield* makeSlotServer(4)
    backend.setServiceMs(30)
    const postgres = yield* makePostgresClusterWith(durable)
    const redis = yield* makeRedisServer(findRedis())
    const database = layerPostgres({ url: postgres.socket("postgres"), statementTimeoutMs: 20_000 })
    yield* Effect.provide(migrate, database)
    const wires = {
      postgres: yield* makeFaultProxy({ host: "127.0.0.1", port: postgres.port }),
      redis: yield* makeFaultProxy({ host: "127.0.0.1", port: redis.port }),
      backend: yield* makeFaultProxy({ host: "127.0.0.1", port: Number(new URL(backend.url).port) })
    }
    const through = new URL(Redacted.value(postgres.url("postgres")))
    through.port = String(wires.postgres.port)
    let log: Array<string> = []
    let rest = ""
    const heard = (text: string) => {
      const lines = (rest + text).split("\n")
      rest = lines.pop() ?? ""
      log.push(...lines)
    }
    // The defaults, fifteen times shorter, where they decide how long an outage is hidden.
    const env = {
      NODE_ENV: "production",
      DATABASE_URL: through.href,
      REDIS_URL: `redis://${host(wires.redis.port)}`,
      BACKEND_URL: `http://${host(wires.backend.port)}`,
      BACKEND_MAX_CONCURRENT: "4",
      QUEUE_MAX_WAIT_MS: "2000",
      MODEL_DISCOVERY_REFRESH_S: "2",
      MODEL_DISCOVERY_CACHE_TTL_S: "8",
      BREAKER_OPEN_MS: "2000",
      BACKEND_FIRST_BYTE_TIMEOUT_MS: "1000",
      CONCURRENCY_LEASE_S: "5",
      TRUSTED_PROXIES: "127.0.0.1",
      LOG_LEVEL: "warn"
    }
    const replicas = [yield* makeReplica(env, heard), yield* makeReplica(env, heard)] as const
    const front = yield* freePort
    yield* balance(front, [replicas[0].url, replicas[1].url])
    const url = `http://${host(front)}`
    yield* Effect.tryPromise(async () => {
      const { ok } = await fetch(`${url}/readyz`)
      if (!ok) throw new Error("not ready")
    }).pipe(Effect.retry({ schedule: Schedule.spaced("100 millis"), times: 200 }))
    const prometheus = yield* makeFastPrometheus(replicas.map((replica) => new URL(replica.url).host))
    const takeLog = () => {
      const taken = log
      log = []
      return taken
    }
    return Layer.mergeAll(
      Layer.succeed(Ground, { postgres, prometheus, redis, replicas, takeLog, url, wires }),
      layerRegistry({ namespace: "tg_", defaults: { rpm: 60, tpm: 100_000, concurrent: 4 } })
    ).pipe(Layer.provideMerge(database))
  })
)
