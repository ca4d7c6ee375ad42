/** The command line: joins the commands with the live layers, and turns every end into a line and an exit code. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Exit, Layer } from "effect"
import { Command } from "effect/cli"
import { version } from "../src/version.ts"
import { explain, interrupted, presenter } from "./endings.ts"
import { makeProgram } from "./program.ts"
import { layerAdmin, layerBackend, layerDatabase } from "./surroundings.ts"

/** Loaded only by the one command that needs the whole service: the others start twice as fast. */
const serve = Effect.flatMap(
  Effect.promise(() => import("../src/serve.ts")),
  (module) => module.serve
)

const program = makeProgram({
  registry: layerAdmin,
  database: layerDatabase,
  backend: layerBackend,
  serve
})

const stopped = process.argv[2] === "serve" ? 0 : interrupted

Command.runWith(program, { version })(process.argv.slice(2)).pipe(
  Effect.as(0),
  Effect.catchCause(explain),
  Effect.provide(Layer.merge(NodeServices.layer, presenter)),
  (main) =>
    NodeRuntime.runMain(main, {
      disableErrorReporting: true,
      // The commands answer with their code; a gateway that was told to stop, and did, has done well.
      teardown: (exit, onExit) =>
        onExit(Exit.isSuccess(exit) && typeof exit.value === "number" ? exit.value : stopped)
    })
)
