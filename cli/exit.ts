/** Ends a failed command with lines on stderr and an exit code. */
import { Cause, Console, Data, Effect } from "effect"
import { CliError, CliOutput } from "effect/cli"
import { StartupError } from "../src/startup/StartupError.ts"
import { redact } from "../src/domain/Key.ts"
import { errorMessages, usageMessage } from "./errorMessages.ts"

/** The command failed, and has printed already what is wrong. */
export class Reported extends Data.TaggedError("Reported") {}

/** The command found nothing wrong and could not look at everything; it has printed what is missing. */
export class Incomplete extends Data.TaggedError("Incomplete") {}

/** Longest line, in characters. */
const maxLength = 500

/** A line, made safe: it may repeat what was typed, which may be a key or an escape sequence. */
const safe = (line: string): string => {
  const text = redact(line)
  return text.length <= maxLength ? text : `${text.slice(0, maxLength)}…`
}

/** Prints errors on stderr: a line for each, or one JSON object with `--json`. */
export const printErrors = (lines: ReadonlyArray<string>, json: boolean): Effect.Effect<void> =>
  json
    ? Console.error(JSON.stringify({ error: { message: safe(lines.join("; ")) } }))
    : Effect.forEach(lines, (line) => Console.error(safe(`tollgate: ${line}`)), { discard: true })

/** Whether errors are printed as JSON. The flag may be part of a command line that cannot be read. */
export const wantsJson = (args: ReadonlyArray<string>): boolean => args.includes("--json")

/** Prints one line for wrong usage instead of the whole help, because scripts and logs keep it. */
export const makePresenter = (json: boolean, commands: ReadonlyArray<string>) =>
  CliOutput.layerPresenter({
    present: (event) =>
      event._tag === "InvalidInvocation"
        ? printErrors([usageMessage(event.commandPath, event.errors[0], commands)], json)
        : CliOutput.defaultPresenter.present(event)
  })

/** 128 + SIGINT */
export const interrupted = 130

/** Prints the error, once, and returns the exit code. */
export const reportFailure = (cause: Cause.Cause<unknown>, json: boolean): Effect.Effect<number> => {
  if (Cause.hasInterruptsOnly(cause)) return Effect.succeed(interrupted)
  const error = Cause.squash(cause)
  if (error instanceof Reported) return Effect.succeed(1)
  if (error instanceof Incomplete) return Effect.succeed(2)
  // The presenter has printed already. Help after wrong usage is a failure; help after a bare command is not.
  if (CliError.isCliError(error) && error._tag === "ShowHelp") {
    return Effect.succeed(error.errors.length === 0 ? 0 : 1)
  }
  return Effect.as(
    printErrors(errorMessages(error), json),
    error instanceof StartupError ? error.exitCode : 1
  )
}
