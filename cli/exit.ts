/** Ends a failed command with lines on stderr and an exit code. */
import { Cause, Console, Effect } from "effect"
import { CliError, CliOutput } from "effect/cli"
import { StartupError } from "../src/startup/StartupError.ts"
import { printable } from "../src/observability/redact.ts"
import { exitCodeConfiguration } from "../src/Settings.ts"
import { errorMessages, usageMessage } from "./errorMessages.ts"
import { WrongSettings } from "./environment.ts"

/** Longest line, in characters. */
const maxLength = 500

/** Prints a line, made safe: it may repeat what was typed, which may be a key or an escape sequence. */
const printError = (line: string): Effect.Effect<void> => {
  const text = printable(`tollgate: ${line}`)
  return Console.error(text.length <= maxLength ? text : `${text.slice(0, maxLength)}…`)
}

/** Prints one line for wrong usage instead of the whole help, because scripts and logs keep it. */
export const presenter = CliOutput.layerPresenter({
  present: (event) =>
    event._tag === "InvalidInvocation"
      ? printError(usageMessage(event.commandPath, event.errors[0]))
      : CliOutput.defaultPresenter.present(event)
})

/** 128 + SIGINT */
export const interrupted = 130

/** Prints the error, once, and returns the exit code. */
export const reportFailure = (cause: Cause.Cause<unknown>): Effect.Effect<number> => {
  if (Cause.hasInterruptsOnly(cause)) return Effect.succeed(interrupted)
  const error = Cause.squash(cause)
  // The presenter has printed already. Help after wrong usage is a failure; help after a bare command is not.
  if (CliError.isCliError(error) && error._tag === "ShowHelp") {
    return Effect.succeed(error.errors.length === 0 ? 0 : 1)
  }
  const code =
    error instanceof WrongSettings
      ? exitCodeConfiguration
      : error instanceof StartupError
        ? error.exitCode
        : 1
  return Effect.as(Effect.forEach(errorMessages(error), printError), code)
}
