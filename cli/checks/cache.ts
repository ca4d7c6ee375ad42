/** Checks of Redis: connection, version and policy, encryption, clock and memory. */
import { Effect, Option, Schema } from "effect"
import { faultOf, probeWrites } from "../../src/gates/meter/redis/requirements.ts"
import { codeOf } from "../../src/infra/errorCode.ts"
import { Redis, RedisFailed } from "../../src/infra/Redis.ts"
import { type Check, clockCheck, ok, storeFailed, tlsCheck, took, warning } from "./Check.ts"

/** How long the first connection may take, and how long a client may try again after an error. */
const connectMs = 5000
const retryMs = 700

/** Waits for the connection. Fails with the last error of the client, which commands do not tell. */
export const connected = Effect.flatMap(Redis, ({ client }) =>
  Effect.callback<void, unknown>((resume) => {
    let last: unknown
    const timers: Array<NodeJS.Timeout> = []
    const end = (result: Effect.Effect<void, unknown>) => {
      // A timer that is left keeps the command from ending.
      for (const timer of timers) clearTimeout(timer)
      client.off("error", remember).off("ready", ready)
      resume(result)
    }
    const ready = () => end(Effect.void)
    const giveUpAfter = (ms: number) => void timers.push(setTimeout(() => end(Effect.fail(last)), ms))
    const remember = (error: unknown) => {
      if (last === undefined) giveUpAfter(retryMs)
      if (last === undefined || codeOf(error) !== undefined) last = error
    }
    if (client.status === "ready") return ready()
    client.on("error", remember).once("ready", ready)
    giveUpAfter(connectMs)
    return Effect.sync(ready)
  })
)

const decodeTime = Schema.decodeUnknownEffect(
  Schema.Tuple([Schema.FiniteFromString, Schema.FiniteFromString])
)
const number = (info: string, field: string): number =>
  Number(new RegExp(`^${field}:(\\d+)`, "m").exec(info)?.[1] ?? 0)

const unreachable = (error: unknown): ReadonlyArray<Check> => [storeFailed("cache", error)]

const essential = Effect.gen(function* () {
  yield* connected
  const redis = yield* Redis
  const { send, server } = redis
  yield* send("TIME", [])
  const [ms, time] = yield* Effect.timed(Effect.option(Effect.flatMap(send("TIME", []), decodeTime)))
  const found = yield* server
  const fault = faultOf(found)
  const state = yield* Effect.match(
    fault === undefined ? probeWrites(redis) : new RedisFailed({ cause: fault }),
    {
      onFailure: (error) => storeFailed("cache", error),
      onSuccess: () => ok("cache", `Redis ${found.version}, ${took(ms)}`)
    }
  )
  return { time, state }
})

/** Connection, version, policy and writes. */
export const cacheStatus: Effect.Effect<ReadonlyArray<Check>, never, Redis> = Effect.match(essential, {
  onFailure: unreachable,
  onSuccess: ({ state }) => [state]
})

const memoryCheck = Effect.gen(function* () {
  const { client } = yield* Redis
  const info = yield* Effect.tryPromise(() => client.info("memory"))
  const limit = number(info, "maxmemory")
  const used = limit === 0 ? 0 : number(info, "used_memory") / limit
  return used > 0.9
    ? warning(
        "cache memory",
        `${Math.round(used * 100)} % of maxmemory is used`,
        "raise maxmemory: when Redis is full, every request is refused with 503"
      )
    : ok("cache memory", limit === 0 ? "no limit is set" : `${Math.round(used * 100)} % of maxmemory`)
})

const isLocal = (url: string): boolean => /[@/](?:localhost|127\.\d+\.\d+\.\d+|\[::1\])[:/]?/.test(url)

/** All checks of Redis. `url` only tells whether the connection is encrypted and local. */
export const cacheChecks = (url: string): Effect.Effect<ReadonlyArray<Check>, never, Redis> =>
  Effect.gen(function* () {
    const { state, time } = yield* essential
    return [
      state,
      tlsCheck("cache TLS", "Redis", url.startsWith("rediss"), isLocal(url), "use rediss:// in REDIS_URL"),
      ...Option.toArray(time).map(([seconds, micros]) =>
        clockCheck("cache clock", Date.now() - (seconds * 1000 + micros / 1000))
      ),
      // A connection to a replica ends with its first refusal.
      ...(state.state === "failed" ? Option.toArray(yield* Effect.option(memoryCheck)) : [yield* memoryCheck])
    ]
  }).pipe(Effect.catch((error) => Effect.succeed(unreachable(error))))
