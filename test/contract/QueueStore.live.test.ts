import { Clock, Effect, Layer } from "effect"
import { makeRedisQueueStore } from "../../src/gates/queue/redis/RedisQueueStore.ts"
import { Redis } from "../../src/infra/Redis.ts"
import { layerReadyRedis } from "../support/TestMeter.ts"
import { layerTestRedis } from "../support/TestRedis.ts"
import { maxWaitMs } from "../support/wait.ts"
import { batchEveryMs, graceMs, leaseS, Replicas, suite } from "./QueueStore.ts"
import { properties } from "./QueueStoreProperty.ts"

const twin = () =>
  Layer.effect(
    Replicas,
    Effect.map(Redis, (redis) => ({
      of: () =>
        Effect.provideService(
          makeRedisQueueStore({ leaseS, graceMs, batchEveryMs }, Clock.currentTimeMillis),
          Redis,
          redis
        ),
      clear: Effect.orDie(Effect.asVoid(redis.send("FLUSHDB", []))),
      // In real time: the clock of the test stands still.
      delivered: (holds) =>
        Effect.promise(async () => {
          const until = performance.now() + maxWaitMs
          while (!holds() && performance.now() < until) await new Promise(setImmediate)
        })
    }))
  ).pipe(Layer.provide(layerReadyRedis), Layer.provide(Layer.fresh(layerTestRedis)))

suite("QueueStore in Redis", twin)
properties("QueueStore in Redis", twin, { runs: 120 })
