/**
 * The connection to the Redis server: commands, each with a deadline; scripts; messages.
 *
 * *Gotchas* A command that timed out may still run later. So every mutation must be idempotent by an id, and whatever it
 * leaves behind must expire.
 */
import { createHash } from "node:crypto"
import { Context, Data, Effect, FiberHandle, Layer, Predicate, Schedule, type Scope } from "effect"
import type { Redis as RedisClient } from "ioredis"
import { codeOf } from "./errorCode.ts"
import { OutageLog } from "./OutageLog.ts"
import { defaultCommandTimeoutMs, makeRedisClient, type RedisOptions } from "./RedisClient.ts"
import { makeMonotonicMs } from "./time.ts"

/** No reply, or an error as the reply. `cause` is for the log. */
export class RedisFailed extends Data.TaggedError("RedisFailed")<{ readonly cause: unknown }> {}

/** Runs `listen` for each message of `channels` while the scope is open. Messages are lost while there is no connection. */
export type Subscribe = (
  channels: ReadonlyArray<string>,
  listen: (channel: string, text: string) => Effect.Effect<void>
) => Effect.Effect<void, never, Scope.Scope>

/** Facts from the INFO command. */
export interface RedisInfo {
  /** changes with each start of the server */
  readonly runId: string
  readonly version: string
  readonly evictionPolicy: string
  /** whether it is a node of a Redis Cluster */
  readonly isClustered: boolean
}

export type RedisArgument = string | number

/** Runs a Lua script in one round trip, and loads it when the server does not know it. */
export type RedisScript = (
  keys: ReadonlyArray<string>,
  args: ReadonlyArray<RedisArgument>
) => Effect.Effect<unknown, RedisFailed>

export class Redis extends Context.Service<
  Redis,
  {
    readonly client: RedisClient
    /** Sends one command. */
    readonly send: (
      command: string,
      args: ReadonlyArray<RedisArgument>
    ) => Effect.Effect<unknown, RedisFailed>
    /** The facts of the server, read again after a reconnect, every 30 s, and by `askServer`. */
    readonly server: Effect.Effect<RedisInfo, RedisFailed>
    /** Reads the facts of the server now, for `server` too: its configuration can change while it runs. */
    readonly askServer: Effect.Effect<RedisInfo, RedisFailed>
    /** Run id of the server that the next command goes to; empty when unknown. */
    readonly runId: () => string
    readonly script: (lua: string) => RedisScript
    readonly subscribe: Subscribe
  }
>()("tollgate/infra/Redis") {}

/**
 * Waits for the reply at most `ms`. When this process was busy for so long, a reply may be here that nobody has read yet: after
 * the timer Node first reads it, and then runs the immediate.
 */
const withDeadline = <A>(ms: number, send: () => Promise<A>): Effect.Effect<A, RedisFailed> =>
  Effect.callback((resume) => {
    const fail = (cause: unknown) => resume(Effect.fail(new RedisFailed({ cause })))
    let afterReads: NodeJS.Immediate | undefined
    const timer = setTimeout(() => {
      afterReads = setImmediate(fail, `no answer in ${ms} ms`)
    }, ms)
    const stop = () => {
      clearTimeout(timer)
      clearImmediate(afterReads)
    }
    send()
      .finally(stop)
      .then((reply) => resume(Effect.succeed(reply)), fail)
    return Effect.sync(stop)
  })

/** Logs connection errors, at most one line in ten seconds. */
const makeErrorLog = Effect.gen(function* () {
  const run = Effect.runForkWith(yield* Effect.context<never>())
  const log = new OutageLog(yield* makeMonotonicMs, { remindMs: 10_000 })
  return (cause: unknown): void => {
    const code = codeOf(cause)
    // What has no code of the system or of TLS is a reply that could not be read, or a defect.
    const rest = code === undefined ? [cause] : []
    run(
      log.failed((errors) =>
        Effect.logWarning("redis connection error", { code: code ?? "unknown", errors }, ...rest)
      )
    )
  }
})

const infoOf = (text: string): RedisInfo => {
  const field = (name: string): string => new RegExp(`^${name}:(.*?)\r?$`, "m").exec(text)?.[1] ?? ""
  return {
    runId: field("run_id"),
    version: field("redis_version"),
    evictionPolicy: field("maxmemory_policy"),
    isClustered: field("cluster_enabled") === "1"
  }
}

/** How long the answer of INFO is used: long enough to cost nothing, short enough to notice a changed configuration. */
const infoMs = 30_000

/** The facts of the server. They belong to one connection: another one may lead to another server. */
const makeServer = (client: RedisClient, timeoutMs: number, nowMs: () => number) => {
  let closed = 0
  let known: { readonly at: number; readonly server: RedisInfo } | undefined
  /** Why there is no connection, which commands do not tell. */
  let broken: unknown
  client.on("error", (cause) => void (broken = cause))
  client.on("ready", () => void (broken = undefined))
  client.on("close", () => {
    closed += 1
    known = undefined
  })
  const read = Effect.gen(function* () {
    const before = closed
    const text = yield* withDeadline(timeoutMs, () => client.info()).pipe(
      Effect.mapError(({ cause }) => new RedisFailed({ cause: broken ?? cause }))
    )
    const server = infoOf(text)
    if (closed === before) known = { at: nowMs(), server }
    return server
  })
  return {
    askServer: read,
    server: Effect.suspend(() =>
      known !== undefined && nowMs() - known.at < infoMs ? Effect.succeed(known.server) : read
    ),
    runId: () => (client.status === "ready" ? (known?.server.runId ?? "") : "")
  }
}

const isNoScript = ({ cause }: RedisFailed): boolean =>
  cause instanceof Error && cause.message.startsWith("NOSCRIPT")

/** The server's own refusal. Other errors are of the connection, and are logged with those of the commands. */
export const isRefusal = ({ cause }: RedisFailed): boolean =>
  Predicate.hasProperty(cause, "name") && cause.name === "ReplyError"

/** On a connection of its own. */
const makeSubscribe = (options: RedisOptions): Subscribe =>
  Effect.fnUntraced(function* (channels, listen) {
    const log = new OutageLog(yield* makeMonotonicMs, { remindMs: 60_000 })
    const run = yield* FiberHandle.makeRuntime<never>()
    const handle = Effect.runForkWith(yield* Effect.context<never>())
    const client = yield* makeRedisClient(options, () => undefined)
    const subscribe = Effect.tryPromise({
      try: () => client.subscribe(...channels),
      catch: (cause) => new RedisFailed({ cause })
    }).pipe(
      Effect.tapError((failed) =>
        isRefusal(failed)
          ? log.failed(() => Effect.logWarning("redis refuses messages", failed.cause))
          : Effect.void
      ),
      // A refusal leaves the connection open. A new connection says "ready", which subscribes again.
      Effect.retry({ schedule: Schedule.spaced("500 millis"), while: () => client.status === "ready" }),
      Effect.andThen(log.over(Effect.void)),
      Effect.ignore
    )
    client.on("ready", () => run(subscribe))
    client.on("message", (channel: string, text: string) =>
      handle(
        Effect.suspend(() => listen(channel, text)).pipe(
          Effect.catchCause((cause) => Effect.logError("message from redis not handled", cause))
        )
      )
    )
  })

/** The layer builds while Redis is down. Commands fail until it is connected. */
export const layerRedis = (options: RedisOptions): Layer.Layer<Redis> =>
  Layer.effect(
    Redis,
    Effect.gen(function* () {
      const client = yield* makeRedisClient(options, yield* makeErrorLog)
      const timeoutMs = options.commandTimeoutMs ?? defaultCommandTimeoutMs
      const send = (command: string, args: ReadonlyArray<RedisArgument>) =>
        withDeadline(timeoutMs, () => client.call(command, [...args]))
      const script = (lua: string): RedisScript => {
        const sha = createHash("sha1").update(lua).digest("hex")
        return (keys, args) => {
          const rest = [keys.length, ...keys, ...args]
          return Effect.catchIf(send("evalsha", [sha, ...rest]), isNoScript, () =>
            send("eval", [lua, ...rest])
          )
        }
      }
      return {
        client,
        send,
        script,
        subscribe: makeSubscribe(options),
        ...makeServer(client, timeoutMs, yield* makeMonotonicMs)
      }
    })
  )
