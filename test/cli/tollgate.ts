/** Runs the command line as an operator does: another process, with nothing but the environment given. */
import { spawn } from "node:child_process"
import { fileURLToPath } from "node:url"
import { Effect, Redacted } from "effect"
import { TestDatabase } from "../support/TestPostgres.ts"

export interface Ran {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

const main = fileURLToPath(new URL("../../cli/main.ts", import.meta.url))

export const tollgateWith = (
  environment: Readonly<Record<string, string>>,
  args: ReadonlyArray<string>
): Effect.Effect<Ran> =>
  Effect.callback<Ran>((resume) => {
    const child = spawn(process.execPath, [main, ...args], {
      env: { PATH: process.env["PATH"], DATA_DIR: "/nonexistent", ...environment },
      stdio: ["ignore", "pipe", "pipe"]
    })
    let stdout = ""
    let stderr = ""
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      stdout += text
    })
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr += text
    })
    child.on("close", (code) => resume(Effect.succeed({ code, stdout, stderr })))
    return Effect.sync(() => child.kill("SIGKILL"))
  })

/** On the test's own database. */
export const tollgate = (...args: ReadonlyArray<string>) =>
  Effect.flatMap(TestDatabase, ({ url }) => tollgateWith({ DATABASE_URL: Redacted.value(url) }, args))
