/** `npm start`: runs the gateway, and each of its workers. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Cause, Console, Effect, Exit } from "effect"
import { StartupError } from "./startup/StartupError.ts"
import { renderCause } from "./observability/renderCause.ts"
import { redact } from "./observability/redact.ts"
import { start, worker } from "./start.ts"

const reported = start.pipe(
  Effect.tapCause((cause) => {
    if (Cause.hasInterruptsOnly(cause)) return Effect.void
    const error = Cause.squash(cause)
    if (!(error instanceof StartupError)) {
      return Console.error("tollgate: stopped by a defect", redact(renderCause(cause), true))
    }
    // The primary prints what its workers report.
    return worker === undefined
      ? Effect.forEach(error.lines, (line) => Console.error(redact(`tollgate: ${line}`)))
      : Effect.void
  })
)

const exitCodeOf = (exit: Exit.Exit<unknown, unknown>): number => {
  // A stop after a signal is a success: exit code 0, also under load.
  if (Exit.isSuccess(exit) || Cause.hasInterruptsOnly(exit.cause)) return 0
  const error = Cause.squash(exit.cause)
  return error instanceof StartupError ? error.exitCode : 1
}

NodeRuntime.runMain(reported, {
  disableErrorReporting: true,
  teardown: (exit, onExit) => {
    const code = exitCodeOf(exit)
    // The channel to the primary would keep a worker alive that has ended.
    if (worker !== undefined) process.exit(code)
    onExit(code)
  }
})
