/** A real Redis Cluster of three masters on loopback, thrown away with its scope. */
import { Effect, Layer } from "effect"
import { inject } from "vitest"
import { findRedis } from "./servers/RedisBinary.ts"
import type { TestServerFailed } from "./servers/processes.ts"
import { makeRedisCluster as makeCluster } from "./servers/RedisCluster.ts"
import { TestRedis } from "./TestRedis.ts"

/** With the Redis that the suite has found; `words` are further words of a node's command line. */
export const makeRedisCluster = (words?: Parameters<typeof makeCluster>[1]) => {
  const { command, libraries } = inject("redis")
  return makeCluster(command === "" ? findRedis() : { command, libraries }, words)
}

/** Its `url` is the comma list the gateway takes. */
export const layerRedisCluster: Layer.Layer<TestRedis, TestServerFailed> = Layer.effect(
  TestRedis,
  Effect.map(makeRedisCluster(), (nodes) => ({ url: nodes.map(({ url }) => url).join(",") }))
)
