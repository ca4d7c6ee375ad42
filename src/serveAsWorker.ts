/** Runs one of several workers until the primary, or a signal, stops it. */
import { Deferred, Effect, Layer } from "effect"
import { drainMsOf } from "./App.ts"
import { prepareToServe } from "./infra/v8/flags.ts"
import { layerPostgres } from "./infra/Postgres.ts"
import { layerLogging } from "./observability/logging.ts"
import { layerTracing } from "./observability/tracing.ts"
import { listen, refuseWrongSchema, watchSchema } from "./serve.ts"
import { handleSignals } from "./startup/signals.ts"
import { settingsFrom, type StartupError, startupError } from "./startup/StartupError.ts"
import type { Identity } from "./workers/identity.ts"
import { toPrimary } from "./workers/protocol.ts"
import { sharesOf } from "./workers/shares.ts"
import { makeWorkerLink, type WorkerLink } from "./workers/worker/WorkerLink.ts"

const run = Effect.fnUntraced(function* (
  worker: WorkerLink["Service"]
): Effect.fn.Return<void, StartupError> {
  // Read by each worker, so that a worker that replaces another one has the secrets of today.
  const settings = yield* settingsFrom(process.env)
  yield* handleSignals(drainMsOf(settings) + settings.shutdownGraceMs)
  const { backendUrl, databaseUrl } = settings
  if (backendUrl === undefined || databaseUrl === undefined) {
    return yield* startupError("a worker needs DATABASE_URL and BACKEND_URL")
  }
  const { identity, channel, stopAsked } = worker
  const serving = Effect.gen(function* () {
    // The first worker checks for all.
    if (identity.first) yield* refuseWrongSchema
    const address = yield* listen(settings, { backendUrl, worker })
    channel.tell(toPrimary.listening, address)
    return yield* Effect.raceFirst(watchSchema, Deferred.await(stopAsked))
  })
  yield* serving.pipe(
    // As in `serve`: the last rows are written before the client of the database ends.
    Effect.scoped,
    Effect.provide(
      layerPostgres({
        url: databaseUrl,
        maxConnections: sharesOf(settings, identity.of).databaseConnections
      })
    ),
    Effect.catchTag("SqlError", () => Effect.fail(startupError("DATABASE_URL cannot be used"))),
    Effect.annotateLogs({ worker: identity.number }),
    Effect.provide(
      layerTracing(settings).pipe(Layer.provideMerge(layerLogging(settings, process.stdout.isTTY)))
    )
  )
})

/**
 * Ends the process when the worker has stopped, because its channel to the primary would keep it alive. What keeps a worker
 * from starting is printed once, by the primary.
 */
export const serveAsWorker = (identity: Identity): Effect.Effect<never> =>
  Effect.gen(function* () {
    yield* prepareToServe
    const worker = yield* makeWorkerLink(identity)
    return yield* Effect.match(
      Effect.tapError(run(worker), ({ exitCode, lines }) =>
        Effect.ignore(worker.channel.ask(toPrimary.failed, { lines, exitCode }))
      ),
      { onFailure: ({ exitCode }) => exitCode, onSuccess: () => 0 }
    )
  }).pipe(
    Effect.scoped,
    Effect.flatMap((exitCode) => Effect.sync(() => process.exit(exitCode)))
  )
