/** The reason why the gateway did not start, as lines for the terminal. */
import { Data, Effect, Result, Runtime } from "effect"
import { describeProblem, exitCodeConfiguration, readSettings, type SettingsValues } from "../Settings.ts"

export class StartupError extends Data.TaggedError("StartupError")<{
  readonly lines: ReadonlyArray<string>
  readonly exitCode: number
}> {
  override get [Runtime.errorExitCode](): number {
    return this.exitCode
  }
  override get message(): string {
    return this.lines.join("\n")
  }
}

/** An error of one line, with exit code 1. */
export const startupError = (line: string): StartupError => new StartupError({ lines: [line], exitCode: 1 })

/** Reads the settings. Fails with all problems at once and exit code 78. */
export const settingsFrom = (
  env: Readonly<Record<string, string | undefined>>
): Effect.Effect<SettingsValues, StartupError> => {
  const read = readSettings(env)
  return Result.isSuccess(read)
    ? Effect.succeed(read.success)
    : Effect.fail(
        new StartupError({ lines: read.failure.map(describeProblem), exitCode: exitCodeConfiguration })
      )
}
