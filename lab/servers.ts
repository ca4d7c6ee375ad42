/**
 * What drill, soak and rolling restart run on: two replicas as an operator runs them, and between them and each server that they need a
 * wire that can go bad. Postgres keeps what it acknowledged when it is killed, as it does in production.
 */
import { Effect, Layer, Redacted } from "effect"
import { layerPostgres as layerRegistry } from "../src/admin/Registry.ts"
import { layerPostgres } from "../src/infra/Postgres.ts"
import { type FaultProxy, makeFaultProxy } from "../test/support/FaultProxy.ts"
import {
  durable,
  makePostgresClusterWith,
  type PostgresCluster
} from "../test/support/servers/PostgresCluster.ts"
import { findRedis } from "../test/support/servers/RedisBinary.ts"
import { makeRedisServer, type RedisServer } from "../test/support/servers/RedisServer.ts"
import { makeReplica, prepare, type Replica } from "./scale/World.ts"

export interface Servers {
  readonly postgres: PostgresCluster
  readonly redis: RedisServer
  readonly wires: Readonly<Record<"postgres" | "redis" | "backend", FaultProxy>>
  readonly replicas: readonly [Replica, Replica]
}

export const host = (port: number) => `127.0.0.1:${port}`

export const makeServers = Effect.fnUntraced(function* (
  backendUrl: string,
  env: Readonly<Record<string, string>>,
  more: {
    /** gets each line that a replica prints, and host:port of the model server as the replica knows it */
    readonly heard?: (line: string, backend: string) => void
    readonly redis?: ReadonlyArray<string>
  } = {}
) {
  const postgres = yield* makePostgresClusterWith(durable)
  const redis = yield* makeRedisServer(findRedis(), more.redis)
  const database = layerPostgres({ url: postgres.socket("postgres"), statementTimeoutMs: 60_000 })
  yield* Effect.provide(prepare, database)
  const to = (port: number) => makeFaultProxy({ host: "127.0.0.1", port })
  const wires = {
    postgres: yield* to(postgres.port),
    redis: yield* to(redis.port),
    backend: yield* to(Number(new URL(backendUrl).port))
  }
  const url = new URL(Redacted.value(postgres.url("postgres")))
  url.port = String(wires.postgres.port)
  const own = {
    NODE_ENV: "production",
    DATABASE_URL: url.href,
    REDIS_URL: `redis://${host(wires.redis.port)}`,
    BACKEND_URL: `http://${host(wires.backend.port)}`,
    ...env
  }
  const heard = (line: string) => more.heard?.(line, host(wires.backend.port))
  const replica = Effect.suspend(() =>
    makeReplica(own, more.heard === undefined ? undefined : inLines(heard))
  )
  const replicas = [yield* replica, yield* replica] as const
  const registry = layerRegistry({ namespace: "tg_", defaults: { rpm: 60, tpm: 100_000, concurrent: 4 } })
  const servers: Servers = { postgres, redis, replicas, wires }
  return { servers, layer: Layer.provideMerge(registry, database) }
})

/** Makes whole lines of what comes in pieces. */
const inLines = (heard: (line: string) => void) => {
  let rest = ""
  return (text: string): void => {
    const lines = (rest + text).split("\n")
    rest = lines.pop() ?? ""
    for (const line of lines) heard(line)
  }
}
