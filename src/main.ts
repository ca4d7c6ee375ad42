/** `npm start`: runs the gateway. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Cause, Console, Effect, Exit } from "effect"
import { describeDefect, endAtDefects } from "./startup/defects.ts"
import { StartupError } from "./startup/StartupError.ts"
import { redact } from "./observability/redact.ts"
import { serve } from "./serve.ts"

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
