/**
 * The connection to one Redis server, to the master of sentinels, or to a Redis Cluster. It fails early: commands are not
 * queued while there is no connection, no command is sent twice, and each command has a deadline.
 *
 * *Gotchas* A command that timed out may still run later. So every mutation must be idempotent by an id, and whatever it
 * leaves behind must expire.
 */
import { createHash } from "node:crypto"
import type { ConnectionOptions } from "node:tls"
import { Context, Data, Effect, Layer, Redacted, Result } from "effect"
import { closeBrokenTls } from "./closeBrokenTls.ts"
import { makeConnector } from "./clusterConnector.ts"
import { codeOf } from "./errorCode.ts"
import { Cluster, Single } from "./ioredis.ts"
import { makeMonotonicMs, timerOf } from "./time.ts"
import { backoff, keepConnected } from "./keepConnected.ts"
import { OutageLog } from "./OutageLog.ts"
import { type Answer, type CommandBatch, type GatheredCall, makeCommandBatch } from "./CommandBatch.ts"
import { type CommandArgument, makeCommand, SharedArguments } from "./RedisCommand.ts"
import { readRedisUrl, readRedisUrlTls, type Sentinels } from "./RedisUrl.ts"
import { makeSubscribe, type Subscribe } from "./Subscription.ts"

/** No reply, or an error as the reply. `cause` is for the log. */
export class RedisFailed extends Data.TaggedError("RedisFailed")<{ readonly cause: unknown }> {}

/** Facts from the INFO command. */
export interface RedisInfo {
  /** changes with each start of the server */
  readonly runId: string
  readonly version: string
  readonly evictionPolicy: string
}

/** An argument of a command. A function is called when the command is written to the connection. */
export type RedisArgument = string | number | (() => string)

/** Runs a Lua script in one round trip, and loads it when the server does not know it. */
export type RedisScript = (
  keys: ReadonlyArray<string>,
  args: ReadonlyArray<RedisArgument>
) => Effect.Effect<unknown, RedisFailed>

/** Several calls of a script as one command. Its reply is a text with a line for each call. */
export interface GatheredCommand {
  readonly keys: ReadonlyArray<CommandArgument>
  readonly args: ReadonlyArray<RedisArgument>
  /** for each line of the reply the index of its call */
  readonly order: ReadonlyArray<number>
}

export interface GatherOptions<Call> {
  /** how many calls a command may have; further ones go into the next command */
  readonly most: number
  readonly encode: (calls: ReadonlyArray<Call>) => GatheredCommand
}

export class Redis extends Context.Service<
  Redis,
  {
    readonly client: Single | Cluster
    /** Sends one command. On a cluster it goes to the node of its first key. */
    readonly send: (
      command: string,
      args: ReadonlyArray<RedisArgument>
    ) => Effect.Effect<unknown, RedisFailed>
    /** The servers (masters of a cluster) of this connection, read again after a reconnect and every 30 s. */
    readonly servers: Effect.Effect<ReadonlyArray<RedisInfo>, RedisFailed>
    /** The result of `servers` while it need not be read again. It is the same array until then. */
    readonly knownServers: () => ReadonlyArray<RedisInfo> | undefined
    /** Run id of the server that the next command goes to; empty when unknown, and on a cluster. */
    readonly runId: () => string
    /** All keys of one call must hash to the same slot. */
    readonly script: (lua: string) => RedisScript
    /**
     * Sends the calls of a script that are made in one turn of the event loop as one command, and gives each caller its line
     * of the reply. On a cluster only calls with the same `place` share a command, and their keys must hash to one slot.
     */
    readonly gather: <Call>(
      lua: string,
      options: GatherOptions<Call>
    ) => GatheredCall<Call, string, RedisFailed>
    readonly subscribe: Subscribe
  }
>()("tollgate/infra/Redis") {}

export interface RedisOptions {
  /** as `REDIS_URL`: see `RedisUrl.ts` */
  readonly url: Redacted.Redacted
  /** how long a reply may take after the write, milliseconds, default 400; twice that on a cluster */
  readonly commandTimeoutMs?: number
  /** milliseconds, default 1000 */
  readonly connectTimeoutMs?: number
}

const timeoutOf = (options: RedisOptions): number => options.commandTimeoutMs ?? 400

/**
 * After a failover a connection may lead to a replica. Returning `true` makes ioredis reconnect without sending again. It
 * does so once, not for every open command, because ioredis closes the same connection each time.
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
  // Bounds how long a silent server keeps a connection. Nothing else bounds the handshake of the client.
  socketTimeout: timeoutOf(options) * 5,
  keepAlive: 10_000,
  maxRetriesPerRequest: 0,
  autoResendUnfulfilledCommands: false,
  enableAutoPipelining: false,
  maxLoadingRetryTime: 500,
  connectionName: "tollgate",
  reconnectOnError: givesUpReplicas()
})

/** The client asks the sentinels until they name a new master. Until then every command fails at once. */
const sentinelOptions = (address: Sentinels, options: RedisOptions, tls: ConnectionOptions | undefined) => ({
  sentinels: [...address.sentinels],
  name: address.master,
  db: address.database,
  username: address.username,
  password: address.password,
  sentinelPassword: address.sentinelPassword,
  sentinelCommandTimeout: options.connectTimeoutMs ?? 1000,
  sentinelRetryStrategy: backoff,
  // A demoted master may stay reachable. This closes its connections when the sentinels announce a new master.
  failoverDetector: true,
  // `sentinelTLS` is for the sentinels, the other two for the master.
  ...(tls === undefined ? {} : { tls, enableTLSForSentinelMode: true, sentinelTLS: tls })
})

/** The event of an error of one node of a cluster. */
const nodeError = "node error"

const keepName = (name: string, found: (error: null, address: string) => void) => found(null, name)

const connect = (options: RedisOptions): Single | Cluster => {
  const text = Redacted.value(options.url)
  const address = readRedisUrl(text) ?? { kind: "single", url: text }
  // The settings refuse parameters that cannot be used. Should one come here, TLS with the CAs of the machine is demanded.
  const tls = Result.getOrElse(readRedisUrlTls(text), (): ConnectionOptions => ({}))
  const single = { ...strict(options), enableOfflineQueue: false, retryStrategy: backoff }
  if (address.kind === "sentinel") {
    return new Single({ ...single, ...sentinelOptions(address, options, tls) })
  }
  const encrypted = tls === undefined ? {} : { tls }
  if (address.kind === "single") return new Single(address.url, { ...single, ...encrypted })
  const { password, username } = new URL(address.urls[0])
  const cluster: Cluster = new Cluster([...address.urls], {
    redisOptions: {
      ...strict(options),
      ...(username === "" ? {} : { username: decodeURIComponent(username) }),
      ...(password === "" ? {} : { password: decodeURIComponent(password) }),
      ...encrypted,
      Connector: makeConnector(tls, (error) => cluster.emit(nodeError, error))
    },
    // The client looks the hosts up and dials addresses. With TLS it dials the names, because certificates have them.
    ...(tls === undefined ? {} : { dnsLookup: keepName }),
    enableOfflineQueue: false,
    enableAutoPipelining: false,
    slotsRefreshTimeout: options.connectTimeoutMs ?? 1000,
    maxRedirections: 4,
    retryDelayOnFailover: 50,
    retryDelayOnClusterDown: 50,
    clusterRetryStrategy: backoff
  })
  return cluster
}

/**
 * Calls `listen` with each connection error until the returned function is called. A cluster tells the errors of its nodes by
 * an event of their own; its "error" says only that no node was left.
 */
export const onConnectionError = (client: Single | Cluster, listen: (cause: unknown) => void) => {
  const events = client instanceof Cluster ? ["error", nodeError] : ["error"]
  for (const event of events) client.on(event, listen)
  return () => {
    for (const event of events) client.off(event, listen)
  }
}

/** Logs connection errors, at most one line in ten seconds. Without a listener ioredis prints each error with its stack. */
const logFailures = (client: Single | Cluster) =>
  Effect.gen(function* () {
    const services = yield* Effect.context<never>()
    const run = Effect.runForkWith(services)
    const log = new OutageLog(yield* makeMonotonicMs, { remindMs: 10_000 })
    onConnectionError(client, (cause) => {
      const code = codeOf(cause)
      // What has no code of the system or of TLS is a reply that could not be read, or a defect.
      const rest = code === undefined ? [cause] : []
      run(
        log.failed((errors) =>
          Effect.logWarning("redis connection error", { code: code ?? "unknown", errors }, ...rest)
        )
      )
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

/** How long the answer of INFO is used: long enough to cost nothing, short enough to notice a changed configuration. */
const infoMs = 30_000

/** Caches the facts of the servers for 30 seconds, or until the connection closes. */
const makeServers = (
  client: Single | Cluster,
  command: CommandBatch<RedisFailed>["command"],
  nowMs: () => number
) => {
  let connection = 0
  let cached: { at: number; readonly servers: ReadonlyArray<RedisInfo> } | undefined
  client.on("close", () => {
    connection++
    cached = undefined
  })
  const load = Effect.gen(function* () {
    const usedConnection = connection
    const nodes = client instanceof Cluster ? client.nodes("master") : [client]
    const texts = yield* command<ReadonlyArray<string>>((answer) => {
      Promise.all(nodes.map((node) => node.info())).then(
        (texts) => answer.succeed(texts),
        (cause) => answer.fail(cause)
      )
    })
    const servers = texts.map(infoOf)
    // A cluster lists its nodes a moment after it is connected.
    if (usedConnection === connection && servers.length > 0) cached = { at: nowMs(), servers }
    return servers
  })
  const knownServers = () =>
    cached !== undefined && nowMs() - cached.at < infoMs ? cached.servers : undefined
  return {
    knownServers,
    servers: Effect.suspend(() => {
      const known = knownServers()
      if (known !== undefined) return Effect.succeed(known)
      if (cached === undefined) return load
      // Other requests use the cached facts while this one loads them.
      cached.at = nowMs()
      return load
    }),
    runId: () =>
      client instanceof Cluster || client.status !== "ready" ? "" : (cached?.servers[0]?.runId ?? "")
  }
}

const makeBatch = (client: Single | Cluster, options: RedisOptions): CommandBatch<RedisFailed> => {
  const isSingle = client instanceof Single
  return makeCommandBatch({
    timer: timerOf(Context.empty()),
    // A cluster may redirect a few times.
    ms: timeoutOf(options) * (isSingle ? 1 : 2),
    cork: () => {
      const stream: Single["stream"] | undefined = isSingle ? client.stream : undefined
      stream?.cork()
      return () => stream?.uncork()
    },
    failed: (cause) => new RedisFailed({ cause })
  })
}

const isNoScript = (cause: unknown): boolean => cause instanceof Error && cause.message.startsWith("NOSCRIPT")

const argumentOf = (argument: RedisArgument | SharedArguments): CommandArgument => {
  if (typeof argument === "function") return argument()
  return typeof argument === "number" ? String(argument) : argument
}

const countOf = (keys: ReadonlyArray<CommandArgument>): number =>
  keys.reduce((count, key) => count + (typeof key === "string" ? 1 : key.texts.length), 0)

/** The line of each call, in the order of the calls; or why there is none. */
const linesOf = (reply: unknown, order: ReadonlyArray<number>): ReadonlyArray<string> | string => {
  const lines = typeof reply === "string" ? reply.split("\n") : []
  if (lines.length !== order.length) return `${lines.length} answers to ${order.length} calls`
  const byCall: Array<string> = []
  lines.forEach((line, i) => (byCall[order[i] ?? 0] = line))
  return byCall
}

/** The layer builds while Redis is down. Commands fail until it is connected. */
export const layerRedis = (options: RedisOptions): Layer.Layer<Redis> =>
  Layer.effect(
    Redis,
    Effect.gen(function* () {
      yield* closeBrokenTls
      const client = yield* keepConnected(() => connect(options))
      yield* logFailures(client)
      const { command, gather } = makeBatch(client, options)
      /** Never throws: it is also called from a callback of ioredis, where nobody would catch it. */
      const write = (
        name: string,
        args: ReadonlyArray<RedisArgument | SharedArguments>,
        answer: Answer<unknown>
      ): void => {
        try {
          client.sendCommand(makeCommand(name, args.map(argumentOf), answer))
        } catch (cause) {
          answer.fail(cause)
        }
      }
      const send = (name: string, args: ReadonlyArray<RedisArgument>) =>
        command<unknown>((answer) => write(name.toLowerCase(), args, answer))
      const evaluate = (lua: string) => {
        const sha = new SharedArguments([createHash("sha1").update(lua).digest("hex")])
        return (
          keys: ReadonlyArray<CommandArgument>,
          args: ReadonlyArray<RedisArgument>,
          answer: Answer<unknown>
        ) => {
          const rest = [countOf(keys), ...keys, ...args]
          write("evalsha", [sha, ...rest], {
            succeed: (reply) => answer.succeed(reply),
            fail: (cause) => (isNoScript(cause) ? write("eval", [lua, ...rest], answer) : answer.fail(cause))
          })
        }
      }
      const script = (lua: string): RedisScript => {
        const run = evaluate(lua)
        return (keys, args) => command<unknown>((answer) => run(keys, args, answer))
      }
      const gatherCalls = <Call>(
        lua: string,
        { encode, most }: GatherOptions<Call>
      ): GatheredCall<Call, string, RedisFailed> => {
        const run = evaluate(lua)
        const send = gather<Call, string>(most, (calls, answer) => {
          const { args, keys, order } = encode(calls)
          run(keys, args, {
            succeed: (reply) => {
              const lines = linesOf(reply, order)
              if (typeof lines === "string") answer.fail(lines)
              else answer.succeed(lines)
            },
            fail: (cause) => answer.fail(cause)
          })
        })
        return (place, call, reading) => send(client instanceof Cluster ? place : "", call, reading)
      }
      return {
        client,
        send,
        script,
        gather: gatherCalls,
        subscribe: makeSubscribe(client),
        ...makeServers(client, command, yield* makeMonotonicMs)
      }
    })
  )
