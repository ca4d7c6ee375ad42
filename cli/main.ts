/** The command line: joins the commands with the live layers, and turns each failure into a line and an exit code. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Cause, Effect, Exit, Layer, Redacted, References } from "effect"
import { layerCircuitBreaker } from "../src/backend/CircuitBreaker.ts"
import { layerOllama } from "../src/backend/ollama/client.ts"
import { CountersDown } from "../src/admin/Errors.ts"
import { Meter } from "../src/gates/meter/Meter.ts"
import { layerRedis as layerRedisMeter } from "../src/gates/meter/redis/RedisMeter.ts"
import { Drain } from "../src/infra/Drain.ts"
import { assertSchema } from "../src/infra/Migrations.ts"
import { layerPostgres } from "../src/infra/Postgres.ts"
import { layerRedis, type Redis } from "../src/infra/Redis.ts"
import { layerFromSettings as layerRegistry } from "../src/admin/Registry.ts"
import { Counters, layerPostgres as layerBooks } from "../src/admin/books/Books.ts"
import { Records } from "../src/admin/records/Records.ts"
import { layerPostgres as layerReplicas } from "../src/replicas/Replicas.ts"
import { longestLeaseS } from "../src/Settings.ts"
import { version } from "../src/version.ts"
import { backendStatus } from "./checks/backend.ts"
import { cacheChecks, cacheStatus, connected } from "./checks/cache.ts"
import { type Check, failed, ok } from "./checks/Check.ts"
import { explain } from "../src/observability/explain.ts"
import { databaseChecks, databaseStatus } from "./checks/database.ts"
import { settingsChecks } from "./checks/settings.ts"
import { backendUrl, cacheUrl, databaseAddress, leaseS, settings } from "./environment.ts"
import { interrupted } from "./exit.ts"
import { runCommandLine } from "./program.ts"

/** Loaded only by the command that needs it, so that the others start twice as fast. */
const serve = Effect.flatMap(
  Effect.promise(() => import("../src/serve.ts")),
  (module) => module.serve
)

const layerDatabase = Layer.unwrap(
  Effect.map(databaseAddress, (url) =>
    layerPostgres({ url, maxConnections: 1, applicationName: "tollgate-cli" })
  )
)

/** The database with the schema of this version. */
const layerSchema = Layer.effectDiscard(assertSchema).pipe(Layer.provideMerge(layerDatabase))

const layerBackend = Layer.unwrap(
  Effect.map(backendUrl, (url) =>
    layerOllama({ url, connectTimeoutMs: 3000, firstByteTimeoutMs: 10_000, idleTimeoutMs: 10_000 })
  )
).pipe(Layer.provide([layerCircuitBreaker({ failures: 5, openMs: 1000 }), Drain.layer]))

/** Runs checks. When what they need cannot be built, that is what the check found. */
const checked = <E>(
  name: string,
  checks: Effect.Effect<ReadonlyArray<Check>, E>
): Effect.Effect<ReadonlyArray<Check>> =>
  checks.pipe(
    Effect.catchCause((cause) =>
      Effect.succeed([failed(name, explain(Cause.squash(cause)), "see the settings in docs/reference.md")])
    ),
    // What a check finds is printed, not logged.
    Effect.provideService(References.MinimumLogLevel, "None")
  )

const withCache = (checks: (url: string) => Effect.Effect<ReadonlyArray<Check>, never, Redis>) =>
  checked(
    "cache",
    Effect.flatMap(cacheUrl, (url) =>
      url === undefined
        ? Effect.succeed([ok("cache", "not used: without REDIS_URL one process counts in its memory")])
        : Effect.provide(checks(Redacted.value(url)), layerRedis({ url, commandTimeoutMs: 2000 }))
    )
  )

/** The counters of running gateways. undefined: they are in the memory of one. */
const layerCounters = Layer.unwrap(
  Effect.map(cacheUrl, (url) =>
    url === undefined
      ? Layer.succeed(Counters, undefined)
      : Layer.effect(Counters, Meter).pipe(
          Layer.provide(layerRedisMeter({ leaseS: longestLeaseS })),
          Layer.provide(
            Layer.effectDiscard(Effect.mapError(connected, (cause) => new CountersDown({ cause }))).pipe(
              Layer.provideMerge(layerRedis({ url, commandTimeoutMs: 5000 }))
            )
          )
        )
  )
)

const layerProvenBooks = Layer.unwrap(Effect.map(leaseS, (seconds) => layerBooks({ leaseS: seconds }))).pipe(
  Layer.provide([layerSchema, layerCounters]),
  // What the connections say is printed, not logged.
  Layer.provide(Layer.succeed(References.MinimumLogLevel, "None"))
)

const withDatabase = (checks: typeof databaseStatus) =>
  checked("database", Effect.provide(checks, layerDatabase))

const allOfDatabase = checked(
  "database",
  Effect.flatMap(settings, ({ databaseUrl }) =>
    Effect.provide(databaseChecks(databaseUrl === undefined), layerDatabase)
  )
)

const backendCheck = checked("backend", Effect.provide(backendStatus, layerBackend))

const needs = {
  registry: Layer.unwrap(Effect.map(settings, layerRegistry)).pipe(Layer.provide(layerSchema)),
  records: Records.layer.pipe(Layer.provide(layerSchema)),
  books: layerProvenBooks,
  database: layerDatabase,
  backend: layerBackend,
  replicas: layerReplicas.pipe(Layer.provide(layerDatabase)),
  checks: {
    status: {
      database: withDatabase(databaseStatus),
      cache: withCache(() => cacheStatus),
      backend: backendCheck
    },
    doctor: [settingsChecks, allOfDatabase, withCache(cacheChecks), backendCheck]
  },
  serve
}

const codeWhenInterrupted = process.argv[2] === "serve" ? 0 : interrupted

runCommandLine(needs, version, process.argv.slice(2)).pipe((main) =>
  NodeRuntime.runMain(main, {
    disableErrorReporting: true,
    // Commands return their exit code. A gateway that stopped after a signal exits with 0.
    teardown: (exit, onExit) =>
      onExit(Exit.isSuccess(exit) && typeof exit.value === "number" ? exit.value : codeWhenInterrupted)
  })
)
