/** Hears the notifications of a channel of the database. It holds a connection, and takes another one when that is lost. */
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Cause, Data, Effect, type Scope, Stream } from "effect"
import { background, jittered, makeOutage } from "./background.ts"
import type { BackgroundTask, Metrics } from "./Metrics.ts"

/** The connection for notifications has ended without an error. */
class ListeningEnded extends Data.TaggedError("ListeningEnded")<{}> {}

export interface Listener {
  readonly channel: string
  /** run when there is a connection: what was notified before is missed */
  readonly connected?: Effect.Effect<void>
  readonly heard: (payload: string) => Effect.Effect<void, never, Scope.Scope>
}

export const listen = Effect.fnUntraced(function* (
  task: BackgroundTask,
  pg: PgClient.PgClient,
  { channel, connected = Effect.void, heard }: Listener
): Effect.fn.Return<void, never, Metrics | Scope.Scope> {
  // Never the error itself, which may quote the address of the database.
  const outage = yield* makeOutage(task, (cause) => {
    const error = Cause.squash(cause)
    return Effect.logWarning(
      "notifications lost",
      { channel },
      error instanceof Error ? error.message : "broken"
    )
  })
  const listening = Effect.gen(function* () {
    const notifications = yield* pg.listen(channel)
    yield* outage.over
    yield* connected
    yield* Stream.runForEach(Stream.fromQueue(notifications), ({ payload }) => heard(payload))
    return yield* new ListeningEnded()
  })
  yield* background(task, Effect.scoped(listening), jittered(500), outage)
})
