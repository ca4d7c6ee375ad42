/** A Meter on the run's Redis, in a database of its own, on the TestClock. */
import { once } from "node:events"
import { Clock, Effect, Layer } from "effect"
import { Meter } from "../../src/gates/meter/Meter.ts"
import { makeRedis, type Options } from "../../src/gates/meter/redis/RedisMeter.ts"
import { Redis } from "../../src/infra/Redis.ts"
import { layerPatientRedis, layerTestRedis, TestRedis } from "./TestRedis.ts"

/** A client that is connected: one still connecting refuses commands. */
export const readyRedis = (
  connect: (url: string) => Layer.Layer<Redis>
): Layer.Layer<Redis, never, TestRedis> =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { client } = yield* Redis
      if (client.status !== "ready") yield* Effect.promise(() => once(client, "ready"))
    })
  ).pipe(Layer.provideMerge(Layer.unwrap(Effect.map(TestRedis, ({ url }) => connect(url)))))

export const layerReadyRedis = readyRedis(layerPatientRedis)

export const layerMeterOnClock = (options: Options): Layer.Layer<Meter | Redis> =>
  Layer.effect(
    Meter,
    Effect.flatMap(Effect.all([Redis, Clock.Clock]), ([redis, clock]) =>
      makeRedis(redis, options, () => clock.currentTimeMillisUnsafe())
    )
  ).pipe(Layer.provideMerge(layerReadyRedis), Layer.provide(Layer.fresh(layerTestRedis)))
