/** What commands need of Redis: the books with the counters of running gateways, and its checks. */
import { Context, Effect, Layer, Redacted, References } from "effect"
import { CountersDown } from "../../src/admin/Errors.ts"
import { Books, Counters, layerPostgres as layerBooks } from "../../src/admin/books/Books.ts"
import { Meter } from "../../src/gates/meter/Meter.ts"
import { layerRedis as layerRedisMeter } from "../../src/gates/meter/redis/RedisMeter.ts"
import { layerRedis, type Redis } from "../../src/infra/Redis.ts"
import { longestLeaseS } from "../../src/Settings.ts"
import { cacheChecks, cacheStatus, connected } from "../checks/cache.ts"
import { type Check, checked, ok } from "../checks/Check.ts"
import { cacheUrl, leaseS } from "../environment.ts"
import { layerSchema } from "./database.ts"

/** The counters of running gateways. undefined: they are in the memory of one. */
const layerCounters = Layer.unwrap(
  Effect.map(cacheUrl, (url) =>
    url === undefined
      ? Layer.succeed(Counters, undefined)
      : Layer.effect(Counters, Meter).pipe(
          Layer.provide(layerRedisMeter({ leaseS: longestLeaseS })),
          Layer.provide(
            Layer.effectDiscard(Effect.mapError(connected, (cause) => new CountersDown({ cause }))).pipe(
              Layer.provideMerge(layerRedis({ url, commandTimeoutMs: 5000 }))
            )
          )
        )
  )
)

const layerProvenBooks = Layer.unwrap(Effect.map(leaseS, (seconds) => layerBooks({ leaseS: seconds }))).pipe(
  Layer.provide([layerSchema, layerCounters]),
  // What the connections say is printed, not logged.
  Layer.provide(Layer.succeed(References.MinimumLogLevel, "None"))
)

export const books = Effect.map(Layer.build(layerProvenBooks), Context.get(Books))

const withCache = (checks: (url: string) => Effect.Effect<ReadonlyArray<Check>, never, Redis>) =>
  checked(
    "cache",
    Effect.flatMap(cacheUrl, (url) =>
      url === undefined
        ? Effect.succeed([ok("cache", "not used: without REDIS_URL one process counts in its memory")])
        : Effect.provide(checks(Redacted.value(url)), layerRedis({ url, commandTimeoutMs: 2000 }))
    )
  )

export const status = withCache(() => cacheStatus)
export const doctor = withCache(cacheChecks)
