/**
 * A client of ioredis for a Redis server or a Redis Cluster. It fails early: commands are not queued while there is no
 * connection, and no command is sent twice. It connects again until its scope closes.
 */
import type { ConnectionOptions } from "node:tls"
import { Effect, Redacted, Result, type Scope } from "effect"
import { Cluster, Redis as Single } from "ioredis"
import { makeCurrentUrl } from "./currentUrl.ts"
import { readRedisUrl, readRedisTls } from "./tls.ts"

export type RedisClient = Single | Cluster

export interface RedisOptions {
  /** as `REDIS_URL`: see `tls.ts` */
  readonly url: Redacted.Redacted
  /** how long a reply may take, milliseconds, default 400; twice that on a cluster */
  readonly commandTimeoutMs?: number
  /** milliseconds, default 1000 */
  readonly connectTimeoutMs?: number
}

/** A cluster may redirect a command a few times. */
export const commandTimeoutOf = ({ commandTimeoutMs = 400 }: RedisOptions, client: RedisClient): number =>
  client instanceof Cluster ? 2 * commandTimeoutMs : commandTimeoutMs

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
  { commandTimeoutMs = 400, connectTimeoutMs = 1000 }: RedisOptions,
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
const hearEveryError = (client: Single): Single =>
  client.on("connecting", () => {
    // Now it has the socket of this attempt.
    setImmediate(() => void client.stream?.on("error", ignore))
  })

/** The user and the password of a URL, as far as it has them. */
const credentialsOf = (url: Redacted.Redacted) => {
  const { password, username } = new URL(readRedisUrl(Redacted.value(url))?.[0] ?? "")
  return {
    ...(username === "" ? {} : { username: decodeURIComponent(username) }),
    ...(password === "" ? {} : { password: decodeURIComponent(password) })
  }
}

const keepName = (name: string, found: (error: null, address: string) => void) => found(null, name)

/** ioredis takes the password from the options of a client at each attempt to connect. */
const connectCluster = (
  urls: ReadonlyArray<string>,
  options: RedisOptions,
  tls: ConnectionOptions | undefined,
  renew: (node: Single) => void
): Cluster => {
  const cluster = new Cluster([...urls], {
    redisOptions: { ...connectionOptions(options, tls), ...credentialsOf(options.url) },
    // The client looks the hosts up and dials addresses. With TLS it dials the names, because certificates have them.
    ...(tls === undefined ? {} : { dnsLookup: keepName }),
    enableOfflineQueue: false,
    slotsRefreshTimeout: options.connectTimeoutMs ?? 1000,
    maxRedirections: 4,
    retryDelayOnFailover: 50,
    retryDelayOnClusterDown: 50,
    clusterRetryStrategy: backoff
  })
  cluster.on("+node", (node: Single) => {
    hearEveryError(node)
    renew(node)
    // Only a connection that is opened at once says why a node cannot be reached, for example its certificate.
    node.connect().catch(ignore)
    // ioredis does not handle the rejection of its own ASKING, and an unhandled rejection ends the process
    // (docs/upstream/ioredis.md).
    const asking = node.asking.bind(node)
    Object.assign(node, { asking: () => void asking().catch(ignore) })
  })
  return cluster
}

const connect = (options: RedisOptions, current: () => Redacted.Redacted): RedisClient => {
  const text = Redacted.value(options.url)
  const [first = text, ...others] = readRedisUrl(text) ?? []
  // The settings refuse parameters that cannot be used. If one gets here, TLS with the CAs of the machine is required.
  const tls = Result.getOrElse(readRedisTls(text), (): ConnectionOptions => ({}))
  const renew = (client: Single): void => void Object.assign(client.options, credentialsOf(current()))
  if (others.length > 0) return connectCluster([first, ...others], options, tls, renew)
  const client = new Single(first, {
    ...connectionOptions(options, tls),
    enableOfflineQueue: false,
    retryStrategy: (attempt) => {
      renew(client)
      return backoff(attempt)
    }
  })
  return hearEveryError(client)
}

/**
 * Calls `listen` with each connection error until the returned function is called. A cluster reports the errors of its nodes
 * by an event of their own; its "error" says only that no node was left.
 */
export const onConnectionError = (client: RedisClient, listen: (cause: unknown) => void) => {
  const events = client instanceof Cluster ? ["error", "node error"] : ["error"]
  for (const event of events) client.on(event, listen)
  return () => {
    for (const event of events) client.off(event, listen)
  }
}

/** The client is made while Redis is down too. `listen` gets its connection errors. */
export const makeRedisClient = (
  options: RedisOptions,
  listen: (cause: unknown) => void
): Effect.Effect<RedisClient, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.map(makeCurrentUrl(options.url), (current) => {
      const client = connect(options, current)
      onConnectionError(client, listen)
      return client
    }),
    (client) => Effect.sync(() => client.disconnect())
  )
