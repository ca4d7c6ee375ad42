/** Runs the command line as an operator does: another process, with nothing but the environment given. */
import { spawn } from "node:child_process"
import { fileURLToPath } from "node:url"
import { assert } from "@effect/vitest"
import { Effect, Redacted, Schema } from "effect"
import { compileCache } from "../support/servers/processes.ts"
import { TestDatabase } from "../support/TestPostgres.ts"

export interface Ran {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export const succeeds = (ran: Ran) => assert.strictEqual(ran.code, 0, ran.stderr)

/** One line on stderr, nothing on stdout, and no trace of a stack. */
export const failsWith = (ran: Ran, expected: RegExp, what?: string) => {
  assert.notStrictEqual(ran.code, 0, what)
  assert.strictEqual(ran.stdout, "", what)
  assert.match(ran.stderr, expected, what)
  assert.strictEqual(ran.stderr.trimEnd().split("\n").length, 1, ran.stderr)
  assert.notInclude(ran.stderr, "    at ")
}

/** What a command printed with `--json`. */
export const json = <A>(schema: Schema.Decoder<A>, ran: Ran) =>
  Schema.decodeEffect(Schema.fromJsonString(schema))(ran.stdout)

const main = fileURLToPath(new URL("../../cli/main.ts", import.meta.url))

/** The process of a command, with its output not read yet. */
export const start = (environment: Readonly<Record<string, string>>, args: ReadonlyArray<string>) =>
  spawn(process.execPath, [main, ...args], {
    env: {
      PATH: process.env["PATH"],
      DATA_DIR: "/nonexistent",
      NODE_COMPILE_CACHE: compileCache,
      ...environment
    },
    stdio: ["pipe", "pipe", "pipe"]
  })

export const tollgateWith = (
  environment: Readonly<Record<string, string>>,
  args: ReadonlyArray<string>,
  input?: string
): Effect.Effect<Ran> =>
  Effect.callback<Ran>((resume) => {
    const child = start(environment, args)
    // A command that reads nothing may have ended.
    child.stdin.on("error", () => undefined).end(input)
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
