/** Pub/Sub of Redis, on a connection of its own. */
import { Effect, type Scope } from "effect"
import { Cluster, type Single } from "./ioredis.ts"
import { keepConnected } from "./keepConnected.ts"

/** Calls `listen` with each message of `channels` while the scope is open. Messages are lost while there is no connection. */
export type Subscribe = (
  channels: ReadonlyArray<string>,
  listen: (channel: string, text: string) => void
) => Effect.Effect<void, never, Scope.Scope>

/**
 * After each reconnect it subscribes again itself. ioredis would do that too, but it does not handle the error when that
 * connection breaks before the reply, and a rejected promise that nobody handles ends the process.
 */
const subscriberOf = (client: Single | Cluster): Single | Cluster =>
  client instanceof Cluster
    ? client.duplicate([], { enableOfflineQueue: true })
    : client.duplicate({
        autoResubscribe: false,
        socketTimeout: undefined,
        connectionName: "tollgate-sub"
      })

export const makeSubscribe =
  (client: Single | Cluster): Subscribe =>
  (channels, listen) =>
    Effect.asVoid(
      keepConnected(() => {
        const subscriber = subscriberOf(client)
        subscriber.on("message", listen)
        // Connection errors are logged with the commands.
        subscriber.on("error", () => undefined)
        // When it fails, the connection is broken, and the next one subscribes.
        subscriber.on("ready", () => void subscriber.subscribe(...channels).catch(() => undefined))
        return subscriber
      })
    )
