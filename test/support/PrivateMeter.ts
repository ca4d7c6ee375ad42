/** A Meter on a Redis of its own, and what a test asks of both. */
import { Effect, Layer, Redacted } from "effect"
import type { Claims } from "../../src/domain/Reservation.ts"
import { Meter, Missing } from "../../src/gates/meter/Meter.ts"
import { layerRedis as layerRedisMeter } from "../../src/gates/meter/redis/RedisMeter.ts"
import { layerRedis, Redis } from "../../src/infra/Redis.ts"
import { readyRedis } from "./TestMeter.ts"
import { layerPrivateRedis } from "./TestRedis.ts"

/** A Meter on the Redis of the context. */
export const meterOn = (leaseS: number) =>
  layerRedisMeter({ leaseS }).pipe(
    Layer.provideMerge(Layer.fresh(readyRedis((url) => layerRedis({ url: Redacted.make(url) }))))
  )

/** `extra`: further arguments of `redis-server`. */
export const alone = (leaseS = 30, extra: ReadonlyArray<string> = []) =>
  meterOn(leaseS).pipe(Layer.provideMerge(layerPrivateRedis(extra)))

export const command = (name: string, ...args: Array<string>) =>
  Effect.flatMap(Redis, ({ send }) => send(name, args))

/** What is left of the claims. */
export const left = Effect.fnUntraced(function* (claims: Claims) {
  const headroom = yield* (yield* Meter).peek(claims)
  return headroom instanceof Missing ? yield* Effect.die("missing") : headroom
})
