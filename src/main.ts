/** `npm start`: runs the gateway. */
import { writeSync } from "node:fs"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Cause, Console, Effect, Exit } from "effect"
import { StartupError } from "./startup/StartupError.ts"
import { redact } from "./domain/Key.ts"
import { renderCause } from "./observability/renderCause.ts"
import { serve } from "./serve.ts"

/** One text for stderr: no secret of a key, and nothing of a row or of a parsed text (`renderCause`). */
const describeDefect = (failure: unknown): string =>
  `tollgate: stopped by a defect ${redact(renderCause(failure), true)}`

/**
 * Ends the process at an error in a callback, or a rejected promise, that nobody handles. Node would end it too, but print
 * the error with everything that it quotes. What was running is settled by another replica, or by the next start.
 */
const endAtDefects = (): void => {
  process.on("uncaughtException", (error) => {
    try {
      writeSync(2, `${describeDefect(error)}\n`)
    } finally {
      // Also when stderr is closed, or nobody reads it: an error here would be another code.
      process.exit(1)
    }
  })
}

const reported = serve.pipe(
  Effect.tapCause((cause) => {
    if (Cause.hasInterruptsOnly(cause)) return Effect.void
    const error = Cause.squash(cause)
    return error instanceof StartupError
      ? Effect.forEach(error.lines, (line) => Console.error(redact(`tollgate: ${line}`)))
      : Console.error(describeDefect(cause))
  })
)

const exitCodeOf = (exit: Exit.Exit<unknown, unknown>): number => {
  // A stop after a signal is a success: exit code 0, also under load.
  if (Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)) return 0
  const error = Cause.squash(exit.cause)
  return error instanceof StartupError ? error.exitCode : 1
}

endAtDefects()
NodeRuntime.runMain(reported, {
  disableErrorReporting: true,
  teardown: (exit, onExit) => onExit(exitCodeOf(exit))
})
