/** The command line: joins the commands with the live layers, and turns each failure into a line and an exit code. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Exit, Layer } from "effect"
import { Command } from "effect/cli"
import { AnswerMemory } from "../src/backend/AnswerMemory.ts"
import { layerCircuitBreaker } from "../src/backend/breaker.ts"
import { layerOllama } from "../src/backend/ollama/client.ts"
import { Drain } from "../src/infra/Drain.ts"
import { assertSchema } from "../src/infra/Migrations.ts"
import { layerPostgres } from "../src/infra/Postgres.ts"
import { layerFromSettings as layerRegistry } from "../src/admin/postgres.ts"
import { version } from "../src/version.ts"
import { interrupted, presenter, reportFailure } from "./exit.ts"
import { makeProgram } from "./program.ts"
import { backendUrl, databaseAddress, settings } from "./environment.ts"

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

const layerAdmin = Layer.unwrap(Effect.map(settings, layerRegistry)).pipe(
  Layer.provide(Layer.effectDiscard(assertSchema)),
  Layer.provide(layerDatabase)
)

const layerBackend = Layer.unwrap(
  Effect.map(backendUrl, (url) =>
    layerOllama({ url, connectTimeoutMs: 3000, firstByteTimeoutMs: 10_000, idleTimeoutMs: 10_000 })
  )
).pipe(
  Layer.provide([
    layerCircuitBreaker({ failures: 5, openMs: 1000 }),
    Drain.layer,
    AnswerMemory.layer({ maxBytes: 67_108_864 })
  ])
)

const program = makeProgram({
  registry: layerAdmin,
  database: layerDatabase,
  backend: layerBackend,
  serve
})

const codeWhenInterrupted = process.argv[2] === "serve" ? 0 : interrupted

Command.runWith(program, { version })(process.argv.slice(2)).pipe(
  Effect.as(0),
  Effect.catchCause(reportFailure),
  Effect.provide(Layer.merge(NodeServices.layer, presenter)),
  (main) =>
    NodeRuntime.runMain(main, {
      disableErrorReporting: true,
      // Commands return their exit code. A gateway that stopped after a signal exits with 0.
      teardown: (exit, onExit) =>
        onExit(Exit.isSuccess(exit) && typeof exit.value === "number" ? exit.value : codeWhenInterrupted)
    })
)
