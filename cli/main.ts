/** The command line: joins the commands with the live layers, and turns every end into a line and an exit code. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Cause, Console, Effect, Exit, Layer } from "effect"
import { CliError, CliOutput, Command } from "effect/cli"
import { BootFailed } from "../src/boot/BootFailed.ts"
import { exitCodeConfiguration } from "../src/Settings.ts"
import { version } from "../src/version.ts"
import { makeProgram } from "./program.ts"
import { sentence, usageSentence } from "./sentences.ts"
import { layerAdmin, layerBackend, layerDatabase, WrongSettings } from "./surroundings.ts"

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

/** One line instead of the whole help: it is what scripts and logs keep. */
const presenter = CliOutput.layerPresenter({
  present: (event) =>
    event._tag === "InvalidInvocation"
      ? Console.error(`tollgate: ${usageSentence(event.commandPath, event.errors[0])}`)
      : CliOutput.defaultPresenter.present(event)
})

const interrupted = 130

const explain = (cause: Cause.Cause<unknown>): Effect.Effect<number> => {
  if (Cause.hasInterruptsOnly(cause)) return Effect.succeed(interrupted)
  const error = Cause.squash(cause)
  // The presenter has spoken. Help that was not asked for is no success, but a bare command is.
  if (CliError.isCliError(error) && error._tag === "ShowHelp") {
    return Effect.succeed(error.errors.length === 0 ? 0 : 1)
  }
  const code =
    error instanceof WrongSettings ? exitCodeConfiguration : error instanceof BootFailed ? error.exitCode : 1
  return Effect.as(
    Effect.forEach(sentence(error).split("\n"), (line) => Console.error(`tollgate: ${line}`)),
    code
  )
}

Command.runWith(program, { version })(process.argv.slice(2)).pipe(
  Effect.as(0),
  Effect.catchCause(explain),
  Effect.provide(Layer.merge(NodeServices.layer, presenter)),
  (main) =>
    NodeRuntime.runMain(main, {
      disableErrorReporting: true,
      teardown: (exit, onExit) => onExit(Exit.isSuccess(exit) ? exit.value : interrupted)
    })
)
