/** A Redis database of one's own on the run's server, or a whole server of one's own to freeze and kill. */
import { Context, Effect, Layer, Redacted } from "effect"
import { Redis } from "ioredis"
import { inject } from "vitest"
import { layerRedis } from "../../src/infra/Redis.ts"
import type { TestServerFailed } from "./servers/processes.ts"
import { findRedis } from "./servers/RedisBinary.ts"
import { makeRedisServer, type RedisServer } from "./servers/RedisServer.ts"

export class TestRedis extends Context.Service<
  TestRedis,
  {
    /** REDIS_URL of an empty database that no other test file uses */
    readonly url: string
  }
>()("test/TestRedis") {}

/** An empty database on the run's server. Each build of the layer takes another one. */
export const layerTestRedis: Layer.Layer<TestRedis> = Layer.effect(
  TestRedis,
  Effect.promise(async () => {
    const server = new URL(inject("redis").url)
    const client = new Redis(server.href, { lazyConnect: true })
    await client.connect()
    const [, count = "16"] = await client.config("GET", "databases").then((pair) => [pair].flat().map(String))
    // Database 0 only holds the counter that deals out the others.
    const next = await client.incr("test:databases")
    const index = 1 + (next % (Number(count) - 1))
    await client.select(index)
    await client.flushdb()
    client.disconnect()
    server.pathname = `/${index}`
    return { url: server.href }
  })
)

/** A connection that waits for replies on a busy machine. Tests of the gateway's own patience use `layerRedis`. */
export const layerPatientRedis = (url: string) =>
  layerRedis({ url: Redacted.make(url), commandTimeoutMs: 5000 })

/** The controls of a private Redis, see `RedisServer`. */
export class TestRedisServer extends Context.Service<TestRedisServer, RedisServer>()(
  "test/TestRedisServer"
) {}

/** A private redis-server (about 20 ms): for faults, FLUSHALL, CONFIG SET. */
export const layerPrivateRedis = (
  extra: ReadonlyArray<string> = []
): Layer.Layer<TestRedis | TestRedisServer, TestServerFailed> =>
  Layer.effect(
    TestRedis,
    Effect.map(TestRedisServer, ({ url }) => ({ url }))
  ).pipe(
    Layer.provideMerge(
      Layer.fresh(
        Layer.effect(
          TestRedisServer,
          Effect.suspend(() => {
            const { command, libraries } = inject("redis")
            return makeRedisServer(command === "" ? findRedis() : { command, libraries }, extra)
          })
        )
      )
    )
  )
