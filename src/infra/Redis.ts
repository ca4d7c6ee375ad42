/**
 * The connection to Redis, or to a Redis Cluster. It decides nothing, but it fails early: nothing is queued while
 * there is no connection, nothing is sent twice, and every command has a deadline.
 *
 * *Gotchas* A command that timed out may still be executed later: every mutation has to be idempotent by a name of
 * its own, and what it may have left behind has to expire.
 */
import { createHash } from "node:crypto"
import { Context, Data, Effect, Layer, Redacted } from "effect"
import { Cluster, Redis as Single } from "ioredis"

/** No answer, or an error as the answer. `cause` is for the log. */
export class RedisFailed extends Data.TaggedError("RedisFailed")<{ readonly cause: unknown }> {}

/** A Lua script with the number of its keys: one round trip, loaded when the server does not know it. */
export type RedisScript = (
  keys: ReadonlyArray<string>,
  args: ReadonlyArray<string | number>
) => Effect.Effect<unknown, RedisFailed>

export class Redis extends Context.Service<
  Redis,
  {
    readonly client: Single | Cluster
    /** one command; on a cluster it goes where its first key lives */
    readonly send: (
      command: string,
      args: ReadonlyArray<string | number>
    ) => Effect.Effect<unknown, RedisFailed>
    /** all keys of one call must hash to the same slot */
    readonly script: (lua: string) => RedisScript
  }
>()("tollgate/infra/Redis") {}

export interface RedisOptions {
  /** `redis://` or `rediss://`; a comma list of them means Redis Cluster */
  readonly url: Redacted.Redacted
  /** milliseconds, default 400 */
  readonly commandTimeoutMs?: number
  /** milliseconds, default 1000 */
  readonly connectTimeoutMs?: number
}

const backoff = (attempt: number): number => Math.min(50 * attempt, 500)

const strict = (options: RedisOptions) => {
  const commandTimeout = options.commandTimeoutMs ?? 400
  return {
    commandTimeout,
    connectTimeout: options.connectTimeoutMs ?? 1000,
    // A peer that vanished without a word is given up, and a new connection tried.
    socketTimeout: commandTimeout * 5,
    keepAlive: 10_000,
    maxRetriesPerRequest: 0,
    autoResendUnfulfilledCommands: false,
    enableAutoPipelining: false,
    maxLoadingRetryTime: 500,
    connectionName: "tollgate",
    // After a failover this connection may lead to a replica. `true` reconnects and does not send again.
    reconnectOnError: (error: Error) => error.message.startsWith("READONLY")
  }
}

const connect = (options: RedisOptions): Single | Cluster => {
  const urls = Redacted.value(options.url)
    .split(",")
    .map((url) => url.trim())
  const [first = ""] = urls
  if (urls.length === 1) {
    return new Single(first, { ...strict(options), enableOfflineQueue: false, retryStrategy: backoff })
  }
  const { password, protocol, username } = new URL(first)
  return new Cluster(urls, {
    redisOptions: {
      ...strict(options),
      ...(username === "" ? {} : { username: decodeURIComponent(username) }),
      ...(password === "" ? {} : { password: decodeURIComponent(password) }),
      ...(protocol === "rediss:" ? { tls: {} } : {})
    },
    enableOfflineQueue: false,
    enableAutoPipelining: false,
    slotsRefreshTimeout: options.connectTimeoutMs ?? 1000,
    maxRedirections: 4,
    retryDelayOnFailover: 50,
    retryDelayOnClusterDown: 50,
    clusterRetryStrategy: backoff
  })
}

/** Without a listener ioredis prints errors itself, with a stack; with one per error a dead server fills the log. */
const logFailures = (client: Single | Cluster) =>
  Effect.gen(function* () {
    const services = yield* Effect.context<never>()
    const warn = Effect.runForkWith(services)
    let silentUntil = 0
    let held = 0
    client.on("error", (cause: unknown) => {
      held++
      const now = Date.now()
      if (now < silentUntil) return
      silentUntil = now + 10_000
      const code = cause instanceof Error && "code" in cause ? String(cause.code) : "unknown"
      warn(Effect.logWarning("redis: connection trouble").pipe(Effect.annotateLogs({ code, errors: held })))
      held = 0
    })
  })

const isNoScript = (cause: unknown): boolean => cause instanceof Error && cause.message.startsWith("NOSCRIPT")

/** Builds while Redis is down; commands fail until it is there. */
export const layerRedis = (options: RedisOptions): Layer.Layer<Redis> =>
  Layer.effect(
    Redis,
    Effect.gen(function* () {
      const client = yield* Effect.acquireRelease(
        Effect.sync(() => connect(options)),
        (client) => Effect.sync(() => client.disconnect())
      )
      yield* logFailures(client)
      const failed = (cause: unknown) => new RedisFailed({ cause })
      const deadlineMs = (options.commandTimeoutMs ?? 400) * 2
      const send = (command: string, args: ReadonlyArray<string | number>) =>
        Effect.tryPromise({ try: () => client.call(command, ...args), catch: failed }).pipe(
          // The client's own deadline is per attempt; a cluster may redirect a few times.
          Effect.timeoutOrElse({
            duration: deadlineMs,
            orElse: () => Effect.fail(failed(`no answer to ${command} in ${deadlineMs} ms`))
          })
        )
      const script = (lua: string): RedisScript => {
        const sha = createHash("sha1").update(lua).digest("hex")
        return (keys, args) =>
          send("EVALSHA", [sha, keys.length, ...keys, ...args]).pipe(
            Effect.catchIf(
              (error) => isNoScript(error.cause),
              () => send("EVAL", [lua, keys.length, ...keys, ...args])
            )
          )
      }
      return { client, send, script }
    })
  )
