/** Runs one command line and returns its exit code. Every failure becomes a line on stderr. */
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Layer } from "effect"
import { Command } from "effect/cli"
import { makePresenter, reportFailure, wantsJson } from "./exit.ts"
import { layerHelp, withoutHelpCommand } from "./help.ts"
import { makeProgram, type Needs } from "./program.ts"

export const runCommandLine = <E, S>(
  needs: Needs<E, S>,
  version: string,
  args: ReadonlyArray<string>
): Effect.Effect<number> => {
  const json = wantsJson(args)
  return Command.runWith(makeProgram(needs), { version })(withoutHelpCommand(args)).pipe(
    Effect.as(0),
    Effect.catchCause((cause) => reportFailure(cause, json)),
    Effect.provide(Layer.mergeAll(NodeServices.layer, makePresenter(json), layerHelp))
  )
}
