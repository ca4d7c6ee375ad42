/** Pub/Sub of Redis, on a connection of its own. */
import { Effect, Predicate, type Scope } from "effect"
import { Cluster, type Single } from "./ioredis.ts"
import { keepConnected } from "./keepConnected.ts"
import { OutageLog } from "./OutageLog.ts"
import { makeMonotonicMs } from "./time.ts"

/** Calls `listen` with each message of `channels` while the scope is open. Messages are lost while there is no connection. */
export type Subscribe = (
  channels: ReadonlyArray<string>,
  listen: (channel: string, text: string) => void
) => Effect.Effect<void, never, Scope.Scope>

/** How long after a failure it subscribes again, milliseconds. */
const retryMs = 500
const remindMs = 60_000

/** The server's own refusal. Other errors are of the connection, and are logged with those of the commands. */
const isRefusal = (cause: unknown): boolean =>
  Predicate.hasProperty(cause, "name") && cause.name === "ReplyError"

/** ioredis does not subscribe by itself after a reconnect: it would try once, and nobody would hear that it failed. */
const subscriberOf = (client: Single | Cluster): Single | Cluster =>
  client instanceof Cluster
    ? client.duplicate([], { enableOfflineQueue: true })
    : client.duplicate({
        autoResubscribe: false,
        socketTimeout: undefined,
        connectionName: "tollgate-sub"
      })

export const makeSubscribe = (client: Single | Cluster): Subscribe =>
  Effect.fnUntraced(function* (channels, listen) {
    const run = Effect.runForkWith(yield* Effect.context<never>())
    const log = new OutageLog(yield* makeMonotonicMs, { remindMs })
    yield* keepConnected(() => {
      const subscriber = subscriberOf(client)
      let retry: NodeJS.Timeout | undefined
      /** After each connection, and again after each failure. */
      const subscribe = (): void => {
        clearTimeout(retry)
        if (subscriber.status !== "ready") return
        subscriber.subscribe(...channels).then(
          () => run(log.over(Effect.void)),
          (cause: unknown) => {
            if (isRefusal(cause)) run(log.failed(() => Effect.logWarning("redis refuses messages", cause)))
            // A cluster is ready all the time while one of its nodes breaks, so its client does not say when to subscribe.
            clearTimeout(retry)
            retry = setTimeout(subscribe, retryMs).unref()
          }
        )
      }
      subscriber.on("ready", subscribe)
      // Connection errors are logged with the commands.
      subscriber.on("error", () => undefined)
      subscriber.on("message", (channel: string, text: string) => {
        try {
          listen(channel, text)
        } catch (defect) {
          run(Effect.logError("message from redis not handled", defect))
        }
      })
      return subscriber
    })
  })
