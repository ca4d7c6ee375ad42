/**
 * The connection to Redis, to the master that sentinels name, or to a Redis Cluster. It decides nothing, but it fails
 * early: nothing is queued while there is no connection, nothing is sent twice, and every command has a deadline.
 *
 * *Gotchas* A command that timed out may still be executed later: every mutation has to be idempotent by a name of
 * its own, and what it may have left behind has to expire.
 */
import { createHash } from "node:crypto"
import { Context, Data, Effect, Layer, Redacted } from "effect"
import { Cluster, Command, Redis as Single } from "ioredis"
import { makeMonotonicMs, timerOf } from "./time.ts"
import { OutageLog } from "./OutageLog.ts"
import { type BatchedCommand, makeCommandBatch } from "./CommandBatch.ts"
import { readRedisUrl, type Sentinels } from "./RedisUrl.ts"

/** No answer, or an error as the answer. `cause` is for the log. */
export class RedisFailed extends Data.TaggedError("RedisFailed")<{ readonly cause: unknown }> {}

/** What a Redis says of itself. */
export interface RedisInfo {
  /** another one after every start of the process */
  readonly runId: string
  readonly version: string
  readonly evictionPolicy: string
}

/** A word of a command; one that is a function is asked for when the command is written to the connection. */
export type RedisArgument = string | number | (() => string)

/** A Lua script with the number of its keys: one round trip, loaded when the server does not know it. */
export type RedisScript = (
  keys: ReadonlyArray<string>,
  args: ReadonlyArray<RedisArgument>
) => Effect.Effect<unknown, RedisFailed>

export class Redis extends Context.Service<
  Redis,
  {
    readonly client: Single | Cluster
    /** one command; on a cluster it goes where its first key lives */
    readonly send: (
      command: string,
      args: ReadonlyArray<RedisArgument>
    ) => Effect.Effect<unknown, RedisFailed>
    /** The servers (masters of a cluster) behind this connection, asked anew after a reconnect and every 30 s. */
    readonly servers: Effect.Effect<ReadonlyArray<RedisInfo>, RedisFailed>
    /** Run id of the server that a command written now goes to; empty when not known, and on a cluster. */
    readonly runId: () => string
    /** all keys of one call must hash to the same slot */
    readonly script: (lua: string) => RedisScript
    /** A connection of its own for Pub/Sub; it reconnects and subscribes again by itself. Whoever asks for it ends it. */
    readonly subscriber: () => Single | Cluster
  }
>()("tollgate/infra/Redis") {}

export interface RedisOptions {
  /** as `REDIS_URL`: see `RedisUrl.ts` */
  readonly url: Redacted.Redacted
  /** how long an answer may take once its command is written, milliseconds, default 400; on a cluster twice that */
  readonly commandTimeoutMs?: number
  /** milliseconds, default 1000 */
  readonly connectTimeoutMs?: number
}

const timeoutOf = (options: RedisOptions): number => options.commandTimeoutMs ?? 400

const backoff = (attempt: number): number => Math.min(50 * attempt, 500)

/**
 * After a failover a connection may lead to a replica. `true` reconnects and does not send again: once, and not for
 * every command under way, because ioredis closes the same connection again each time.
 */
const givesUpReplicas = () => {
  let gaveUpAt = Number.NEGATIVE_INFINITY
  return (error: Error): boolean => {
    const now = performance.now()
    if (!error.message.startsWith("READONLY") || now - gaveUpAt < 100) return false
    gaveUpAt = now
    return true
  }
}

const strict = (options: RedisOptions) => ({
  connectTimeout: options.connectTimeoutMs ?? 1000,
  // A peer that vanished without a word is given up, and a new connection tried; nothing else bounds the client's greeting.
  socketTimeout: timeoutOf(options) * 5,
  keepAlive: 10_000,
  maxRetriesPerRequest: 0,
  autoResendUnfulfilledCommands: false,
  enableAutoPipelining: false,
  maxLoadingRetryTime: 500,
  connectionName: "tollgate",
  reconnectOnError: givesUpReplicas()
})

/** The promoted replica is asked for until it is there: until then every command fails at once. */
const sentinelOptions = (address: Sentinels, options: RedisOptions) => ({
  sentinels: [...address.sentinels],
  name: address.master,
  db: address.database,
  username: address.username,
  password: address.password,
  sentinelPassword: address.sentinelPassword,
  sentinelCommandTimeout: options.connectTimeoutMs ?? 1000,
  sentinelRetryStrategy: backoff,
  // A demoted master may stay reachable: its clients leave when the sentinels say so, not when it does.
  failoverDetector: true,
  ...(address.tls ? { tls: {}, enableTLSForSentinelMode: true } : {})
})

const connect = (options: RedisOptions): Single | Cluster => {
  const text = Redacted.value(options.url)
  const address = readRedisUrl(text) ?? { kind: "single", url: text }
  const single = { ...strict(options), enableOfflineQueue: false, retryStrategy: backoff }
  if (address.kind === "single") return new Single(address.url, single)
  if (address.kind === "sentinel") return new Single({ ...single, ...sentinelOptions(address, options) })
  const { password, protocol, username } = new URL(address.urls[0])
  return new Cluster([...address.urls], {
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

/**
 * The client for as long as the scope lives. ioredis gives up for good when a failover is announced just while it looks
 * for the master (its FailoverDetector takes the connecting away under it), and a gateway would be 503 until somebody
 * restarts it: whoever has not been let go tries again.
 */
const acquireClient = (options: RedisOptions) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const client = connect(options)
      let letGo = false
      let attempts = 0
      client.on("ready", () => (attempts = 0))
      client.on("end", () => {
        if (letGo) return
        attempts += 1
        setTimeout(() => {
          // A failure is told by "error", and by another "end".
          if (!letGo && client.status === "end") client.connect().catch(() => undefined)
        }, backoff(attempts)).unref()
      })
      return {
        client,
        release: () => {
          letGo = true
          client.disconnect()
        }
      }
    }),
    ({ release }) => Effect.sync(release)
  ).pipe(Effect.map(({ client }) => client))

/** Without a listener ioredis prints errors itself, with a stack; with one per error a dead server fills the log. */
const logFailures = (client: Single | Cluster) =>
  Effect.gen(function* () {
    const services = yield* Effect.context<never>()
    const run = Effect.runForkWith(services)
    const log = new OutageLog(yield* makeMonotonicMs, { remindMs: 10_000 })
    client.on("error", (cause: unknown) => {
      const code = cause instanceof Error && "code" in cause ? String(cause.code) : "unknown"
      run(log.failed((errors) => Effect.logWarning("redis connection error", { code, errors })))
    })
  })

const infoOf = (text: string): RedisInfo => {
  const field = (name: string): string => new RegExp(`^${name}:(.*?)\r?$`, "m").exec(text)?.[1] ?? ""
  return {
    runId: field("run_id"),
    version: field("redis_version"),
    evictionPolicy: field("maxmemory_policy")
  }
}

/** Long enough to cost nothing, short enough to notice a server that is configured anew. */
const infoMs = 30_000

/** Remembers what the servers said, for as long as the connection they said it on. */
const makeServers = (
  client: Single | Cluster,
  answered: BatchedCommand<RedisFailed>,
  nowMs: () => number
) => {
  let connection = 0
  let known: { at: number; readonly servers: ReadonlyArray<RedisInfo> } | undefined
  client.on("close", () => {
    connection++
    known = undefined
  })
  const ask = Effect.gen(function* () {
    const of = connection
    const nodes = client instanceof Cluster ? client.nodes("master") : [client]
    const texts = yield* answered(() => Promise.all(nodes.map((node) => node.info())))
    const servers = texts.map(infoOf)
    // A cluster names its nodes a moment after it is there.
    if (of === connection && servers.length > 0) known = { at: nowMs(), servers }
    return servers
  })
  return {
    servers: Effect.suspend(() => {
      if (known === undefined) return ask
      if (nowMs() - known.at < infoMs) return Effect.succeed(known.servers)
      // The others go on with what is known while this one asks.
      known.at = nowMs()
      return ask
    }),
    runId: () =>
      client instanceof Cluster || client.status !== "ready" ? "" : (known?.servers[0]?.runId ?? "")
  }
}

const makeAsk = (client: Single | Cluster, options: RedisOptions): BatchedCommand<RedisFailed> => {
  const alone = client instanceof Single
  return makeCommandBatch({
    alarm: timerOf(Context.empty()),
    // A cluster may redirect a few times.
    ms: timeoutOf(options) * (alone ? 1 : 2),
    cork: () => {
      const stream: Single["stream"] | undefined = alone ? client.stream : undefined
      stream?.cork()
      return () => stream?.uncork()
    },
    failed: (cause) => new RedisFailed({ cause })
  })
}

const isNoScript = (cause: unknown): boolean => cause instanceof Error && cause.message.startsWith("NOSCRIPT")

/** Builds while Redis is down; commands fail until it is there. */
export const layerRedis = (options: RedisOptions): Layer.Layer<Redis> =>
  Layer.effect(
    Redis,
    Effect.gen(function* () {
      const client = yield* acquireClient(options)
      yield* logFailures(client)
      const ask = makeAsk(client, options)
      /** Not `call`, which copies its words four times over on their way to the same. */
      const write = (name: string, args: ReadonlyArray<RedisArgument>): Promise<unknown> => {
        const command = new Command(
          name,
          args.map((arg) => (typeof arg === "function" ? arg() : arg)),
          { replyEncoding: "utf8" }
        )
        client.sendCommand(command)
        return command.promise
      }
      const send = (command: string, args: ReadonlyArray<RedisArgument>) => ask(() => write(command, args))
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
      const subscriber = () =>
        client instanceof Cluster
          ? client.duplicate([], { enableOfflineQueue: true })
          : client.duplicate({
              enableOfflineQueue: true,
              socketTimeout: undefined,
              connectionName: "tollgate-sub"
            })
      return { client, send, script, subscriber, ...makeServers(client, ask, yield* makeMonotonicMs) }
    })
  )
