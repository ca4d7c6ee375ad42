/** Starts a gateway and runs until a signal stops it. */
import { Console, Context, Effect, Layer, Schedule } from "effect"
import { HttpServer } from "effect/http"
import { SqlClient } from "effect/sql"
import { drainMsOf, layerAdmin, layerApp, playgroundOf } from "./App.ts"
import { welcome } from "./startup/banner.ts"
import { cannotListen, settingsFrom, startupError, type StartupError } from "./startup/StartupError.ts"
import { Registry } from "./admin/Registry.ts"
import {
  chatModelAt,
  type Dependencies,
  resolveDependencies,
  watchForServer
} from "./startup/dependencies.ts"
import { explain } from "./observability/explain.ts"
import { layerLogging } from "./observability/logging.ts"
import { handleSignals } from "./startup/signals.ts"
import { layerTracing } from "./observability/tracing.ts"
import { isTight, planOf } from "./memory/plan.ts"
import { prepareToServe } from "./startup/v8Flags.ts"
import { assertSchema, migrate } from "./infra/Migrations.ts"
import { makeMonotonicMs } from "./infra/time.ts"
import { OutageLog } from "./infra/OutageLog.ts"
import { layerPostgres } from "./infra/Postgres.ts"
import { removeRuntime, writeRuntime } from "./infra/embedded/RuntimeFile.ts"
import { takeTimeZone, watchTimeZone } from "./replicas/timeZone.ts"
import type { SettingsValues } from "./Settings.ts"

/**
 * Fails with a `StartupError` when the database has a schema that this version does not know, or another time zone. A database that is
 * down does not stop the gateway: until it answers, every request is a 503.
 */
const watchDatabase = Effect.fnUntraced(function* (zone: string) {
  const log = new OutageLog(yield* makeMonotonicMs)
  return yield* assertSchema.pipe(
    Effect.tapErrorTag("MigrationFailed", (error) =>
      log.failed(() => Effect.logWarning("database does not answer", error.cause))
    ),
    Effect.retry({
      while: (error) => error._tag === "MigrationFailed",
      schedule: Schedule.spaced("2 seconds")
    }),
    Effect.andThen(log.over(Effect.logInfo("database answers"))),
    Effect.andThen(watchTimeZone(zone)),
    Effect.mapError((error) => startupError(error.message))
  )
})

/**
 * Checks schema and time zone once before listening. A database that is down does not stop the start: `watchDatabase` decides later.
 */
const refuseWrongDatabase = (zone: string) =>
  Effect.andThen(assertSchema, takeTimeZone(zone)).pipe(
    Effect.catchTags({
      MigrationFailed: () => Effect.void,
      SqlError: () => Effect.void,
      TimeoutError: () => Effect.void
    }),
    Effect.mapError((error) => startupError(error.message))
  )

const listen = (settings: SettingsValues, backendUrl: URL) =>
  Layer.build(layerApp(settings, backendUrl)).pipe(
    Effect.map((services) => HttpServer.formatAddress(Context.get(services, HttpServer.HttpServer).address)),
    Effect.mapError(({ cause }) => startupError(cannotListen(settings.host, settings.port, cause)))
  )

/** Creates a tenant and a key in an empty database. Returns the key; undefined when there are already tenants. */
const seedDemo = Effect.gen(function* () {
  const registry = yield* Registry
  const sql = yield* SqlClient.SqlClient
  // A tenant that cannot be read is one, and does not stop the start.
  if ((yield* sql`SELECT FROM tenants LIMIT 1`).length > 0) return undefined
  yield* registry.createTenant({ name: "demo", allowAllModels: true })
  const { secret } = yield* registry.createKey({ tenant: "demo", name: "first" })
  return secret
})

/** Embedded mode: migrates its own database, creates the demo tenant, and prints how to use the gateway. */
const runEmbedded = Effect.fnUntraced(function* (
  settings: SettingsValues,
  { backend }: Dependencies,
  { dataDir, exited, socket }: NonNullable<Dependencies["embedded"]>
) {
  const [, , key] = yield* Effect.all([migrate, takeTimeZone(settings.timezone), seedDemo]).pipe(
    Effect.provide(layerAdmin(settings)),
    Effect.mapError((error) =>
      startupError(
        `the embedded database cannot be used: ${error._tag === "OtherTimeZone" ? error.message : explain(error)}`
      )
    )
  )
  const baseUrl = yield* listen(settings, backend.url)
  yield* Effect.acquireRelease(
    writeRuntime(dataDir, { pid: process.pid, database: socket, baseUrl, backendUrl: backend.url.href }),
    () => Effect.ignore(removeRuntime(dataDir))
  ).pipe(Effect.mapError((error) => startupError(error.message)))
  const model = yield* chatModelAt(backend.url)
  const [playground, { extraSurfaces }] = [playgroundOf(settings), settings]
  const facts = { baseUrl, playground, extraSurfaces, key, model, dataDir, backend: backend.what }
  yield* Console.log(welcome(facts))
  return yield* Effect.andThen(exited, Effect.fail(startupError("the embedded database has stopped")))
})

const runWithServers = Effect.fnUntraced(function* (settings: SettingsValues, { backend }: Dependencies) {
  yield* refuseWrongDatabase(settings.timezone)
  const baseUrl = yield* listen(settings, backend.url)
  yield* Effect.logInfo(`listening on ${baseUrl}`)
  return yield* watchDatabase(settings.timezone)
})

/** Says what the process may take, and whether that is enough. */
const reportMemory = (settings: SettingsValues) => {
  const plan = planOf(settings.memoryMaxBytes)
  const [limit_mib, requests_mib] = [plan.limit, plan.ledger].map((bytes) => Math.round(bytes / 1_048_576))
  const fields = { limit_mib, requests_mib, connections: plan.connections }
  return isTight(plan, settings.maxRequestBodyBytes)
    ? Effect.logWarning("memory is tight, large requests may be refused", fields)
    : Effect.logInfo("memory", fields)
}

const run = Effect.fnUntraced(function* (settings: SettingsValues) {
  yield* reportMemory(settings)
  const dependencies = yield* resolveDependencies(settings)
  const { backend, database, embedded } = dependencies
  if (backend.isDemo) yield* Effect.forkScoped(watchForServer())
  const running =
    embedded === undefined
      ? runWithServers(settings, dependencies)
      : runEmbedded(settings, dependencies, embedded)
  return yield* running.pipe(
    // The gateway's scope ends before the database client's, so that the last rows can still be written.
    Effect.scoped,
    Effect.provide(layerPostgres({ url: database, maxConnections: settings.databaseConnections })),
    Effect.catchTag("SqlError", (error) => startupError(`the database cannot be used: ${explain(error)}`))
  )
})

/** Runs a gateway with the settings of the environment. */
export const serve: Effect.Effect<never, StartupError> = Effect.gen(function* () {
  const settings = yield* settingsFrom(process.env)
  yield* prepareToServe
  yield* handleSignals(drainMsOf(settings) + settings.shutdownGraceMs)
  const layerObservability = layerTracing(settings).pipe(
    Layer.provideMerge(layerLogging(settings, process.stdout.isTTY))
  )
  return yield* Effect.provide(Effect.scoped(run(settings)), layerObservability)
})
