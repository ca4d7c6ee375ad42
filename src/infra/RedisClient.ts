/**
 * A client of ioredis for a Redis server. It fails early: commands are not queued while there is no
 * connection, and no command is sent twice. It connects again until its scope closes.
 */
import type { ConnectionOptions } from "node:tls"
import { Effect, Redacted, Result, type Scope } from "effect"
import { Redis } from "ioredis"
import { makeCurrentUrl } from "./currentUrl.ts"
import { readRedisTls } from "./tls.ts"

export interface RedisOptions {
  /** as `REDIS_URL`: see `tls.ts` */
  readonly url: Redacted.Redacted
  /** how long a reply may take, milliseconds, default `defaultCommandTimeoutMs` */
  readonly commandTimeoutMs?: number
  /** milliseconds, default 1000 */
  readonly connectTimeoutMs?: number
}

export const defaultCommandTimeoutMs = 400

/** Milliseconds before the next attempt to connect. */
const backoff = (attempt: number): number => Math.min(50 * attempt, 500)

const ignore = (): void => undefined

/**
 * After a failover a connection may lead to a replica. `true` makes ioredis connect again, without sending the command again.
 * One answer in 100 ms is enough: ioredis would close the same connection for each open command.
 */
const leavesReplicas = () => {
  let leftAt = Number.NEGATIVE_INFINITY
  return (error: Error): boolean => {
    const now = performance.now()
    if (!error.message.startsWith("READONLY") || now - leftAt < 100) return false
    leftAt = now
    return true
  }
}

const connectionOptions = (
  { commandTimeoutMs = defaultCommandTimeoutMs, connectTimeoutMs = 1000 }: RedisOptions,
  tls: ConnectionOptions | undefined
) => ({
  connectTimeout: connectTimeoutMs,
  // Bounds how long a silent server keeps a connection. Nothing else bounds the handshake of the client.
  socketTimeout: commandTimeoutMs * 5,
  keepAlive: 10_000,
  maxRetriesPerRequest: 0,
  autoResendUnfulfilledCommands: false,
  // ioredis would subscribe once, and nobody would hear of a failure: `makeSubscribe` does it.
  autoResubscribe: false,
  maxLoadingRetryTime: 500,
  connectionName: "tollgate",
  reconnectOnError: leavesReplicas(),
  ...(tls === undefined ? {} : { tls })
})

/**
 * Listens to every error of each connection. ioredis listens to the first one only. With TLS a second one may follow, the reset
 * after an alert of the server, and an error without a listener ends the process (docs/upstream/ioredis.md).
 */
const hearEveryError = (client: Redis): Redis =>
  client.on("connecting", () => {
    // Now it has the socket of this attempt.
    setImmediate(() => void client.stream?.on("error", ignore))
  })

/** The user and the password of a URL, as far as it has them. */
const credentialsOf = (url: Redacted.Redacted) => {
  const { password, username } = new URL(Redacted.value(url))
  return {
    ...(username === "" ? {} : { username: decodeURIComponent(username) }),
    ...(password === "" ? {} : { password: decodeURIComponent(password) })
  }
}

const connect = (options: RedisOptions, current: () => Redacted.Redacted): Redis => {
  const text = Redacted.value(options.url)
  // The settings refuse parameters that cannot be used. If one gets here, TLS with the CAs of the machine is required.
  const tls = Result.getOrElse(readRedisTls(text), (): ConnectionOptions => ({}))
  const client = new Redis(text, {
    ...connectionOptions(options, tls),
    enableOfflineQueue: false,
    retryStrategy: (attempt) => {
      // ioredis takes user and password from the options of a client at each attempt to connect.
      Object.assign(client.options, credentialsOf(current()))
      return backoff(attempt)
    }
  })
  return hearEveryError(client)
}

/** The client is made while Redis is down too. `listen` gets its connection errors. */
export const makeRedisClient = (
  options: RedisOptions,
  listen: (cause: unknown) => void
): Effect.Effect<Redis, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.map(makeCurrentUrl(options.url), (current) => {
      return connect(options, current).on("error", listen)
    }),
    (client) => Effect.sync(() => client.disconnect())
  )
