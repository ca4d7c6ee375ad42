/** The reason why the gateway did not start, as lines for the terminal. */
import { Data, Effect, Result, Runtime } from "effect"
import { codeOf } from "../infra/errorCode.ts"
import { explain } from "../observability/explain.ts"
import { describeProblem, exitCodeConfiguration, readSettings, type SettingsValues } from "../Settings.ts"

export class StartupError extends Data.TaggedError("StartupError")<{
  readonly lines: ReadonlyArray<string>
  readonly exitCode: number
}> {
  override get [Runtime.errorExitCode](): number {
    return this.exitCode
  }
  override get message(): string {
    return this.lines.join("; ")
  }
}

/** An error with exit code 1. What another program said may have several lines. */
export const startupError = (text: string): StartupError =>
  new StartupError({ lines: text.split("\n").flatMap((line) => line.trim() || []), exitCode: 1 })

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

const advice: Readonly<Record<string, string>> = {
  EADDRINUSE: "another program listens there; stop it, or set another PORT",
  EACCES: "this user may not use this port; set PORT to 1024 or higher",
  EADDRNOTAVAIL: "this machine does not have this address; set HOST to one that it has",
  EAFNOSUPPORT: "this machine has no addresses of this kind; set HOST to one that it has"
}

/** Why the gateway cannot listen, as one line. `cause`: the error of Node. */
export const cannotListen = (host: string, port: number, cause: unknown): string => {
  const known = advice[codeOf(cause) ?? ""]
  const address = host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`
  return `cannot listen on ${address}: ${known === undefined ? explain(cause) : `${known} (${codeOf(cause)})`}`
}
