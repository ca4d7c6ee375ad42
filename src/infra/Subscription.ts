/** Pub/Sub of Redis, on a connection of its own. */
import { Data, Effect, FiberHandle, Predicate, Schedule, type Scope } from "effect"
import { OutageLog } from "./OutageLog.ts"
import { makeRedisClient, type RedisOptions } from "./RedisClient.ts"
import { makeMonotonicMs } from "./time.ts"

/** Runs `listen` for each message of `channels` while the scope is open. Messages are lost while there is no connection. */
export type Subscribe = (
  channels: ReadonlyArray<string>,
  listen: (channel: string, text: string) => Effect.Effect<void>
) => Effect.Effect<void, never, Scope.Scope>

class NotSubscribed extends Data.TaggedError("NotSubscribed")<{ readonly cause: unknown }> {}

/** The server's own refusal. Other errors are of the connection, and are logged with those of the commands. */
const isRefusal = ({ cause }: NotSubscribed): boolean =>
  Predicate.hasProperty(cause, "name") && cause.name === "ReplyError"

export const makeSubscribe = (options: RedisOptions): Subscribe =>
  Effect.fnUntraced(function* (channels, listen) {
    const log = new OutageLog(yield* makeMonotonicMs, { remindMs: 60_000 })
    const run = yield* FiberHandle.makeRuntime<never>()
    const handle = Effect.runForkWith(yield* Effect.context<never>())
    const client = yield* makeRedisClient(options, () => undefined)
    const subscribe = Effect.tryPromise({
      try: () => client.subscribe(...channels),
      catch: (cause) => new NotSubscribed({ cause })
    }).pipe(
      Effect.tapError((failed) =>
        isRefusal(failed)
          ? log.failed(() => Effect.logWarning("redis refuses messages", failed.cause))
          : Effect.void
      ),
      // A cluster stays "ready" while one of its nodes breaks, so it does not say when to try again.
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
