/** How a command that does not succeed ends: lines on stderr and an exit code. */
import { Cause, Console, Effect } from "effect"
import { CliError, CliOutput } from "effect/cli"
import { StartupError } from "../src/startup/StartupError.ts"
import { printable } from "../src/observability/redact.ts"
import { exitCodeConfiguration } from "../src/Settings.ts"
import { sentences, usageSentence } from "./sentences.ts"
import { WrongSettings } from "./surroundings.ts"

/** Characters; nobody reads on. */
const longest = 500

/** What was typed may be repeated in it, and may be anything: a key in the wrong place, an escape sequence. */
const say = (line: string): Effect.Effect<void> => {
  const whole = printable(`tollgate: ${line}`)
  return Console.error(whole.length <= longest ? whole : `${whole.slice(0, longest)}…`)
}

/** One line instead of the whole help: it is what scripts and logs keep. */
export const presenter = CliOutput.layerPresenter({
  present: (event) =>
    event._tag === "InvalidInvocation"
      ? say(usageSentence(event.commandPath, event.errors[0]))
      : CliOutput.defaultPresenter.present(event)
})

/** 128 + SIGINT */
export const interrupted = 130

/** Says what happened, once, and answers with the exit code. */
export const explain = (cause: Cause.Cause<unknown>): Effect.Effect<number> => {
  if (Cause.hasInterruptsOnly(cause)) return Effect.succeed(interrupted)
  const error = Cause.squash(cause)
  // The presenter has spoken. Help that was not asked for is no success, but a bare command is.
  if (CliError.isCliError(error) && error._tag === "ShowHelp") {
    return Effect.succeed(error.errors.length === 0 ? 0 : 1)
  }
  const code =
    error instanceof WrongSettings
      ? exitCodeConfiguration
      : error instanceof StartupError
        ? error.exitCode
        : 1
  return Effect.as(Effect.forEach(sentences(error), say), code)
}
