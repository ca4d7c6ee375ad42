/** Runs a client's script against the gateway and reads what it found. */
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { Effect, Schema } from "effect"
import { TestServerFailed } from "../../test/support/servers/processes.ts"
import { type ClientScript, languageOf, languages } from "./catalogue.ts"
import { commandOf } from "./install.ts"

const found = {
  client: Schema.String,
  version: Schema.String,
  case: Schema.String,
  result: Schema.Literals(["works", "fails", "not offered"]),
  detail: Schema.String
}

export const Result = Schema.Struct({ ...found, language: Schema.Literals(languages) })
export type Result = typeof Result.Type

const readLine = Schema.decodeUnknownEffect(Schema.fromJsonString(Schema.Struct(found)))

export interface Keys {
  readonly url: string
  readonly key: string
  readonly wrongKey: string
  /** its budget is used up */
  readonly limitedKey: string
}

/** Nothing of the environment's own settings and proxies reaches a client. */
const output = Effect.fnUntraced(function* (script: ClientScript, keys: Keys) {
  const [command, ...words] = yield* commandOf(script.environment, script.script)
  return yield* Effect.callback<string, TestServerFailed>((resume) => {
    const home = mkdtempSync(path.join(tmpdir(), "tgc-"))
    const child = spawn(command, [...words, ...script.args], {
      cwd: home,
      env: {
        PATH: process.env["PATH"],
        HOME: home,
        LANG: "C.UTF-8",
        PYTHONDONTWRITEBYTECODE: "1",
        // What a client sends home does not leave the machine: nobody listens there.
        HTTPS_PROXY: "http://127.0.0.1:9",
        NO_PROXY: "127.0.0.1",
        TOLLGATE_URL: keys.url,
        TOLLGATE_KEY: keys.key,
        TOLLGATE_WRONG_KEY: keys.wrongKey,
        TOLLGATE_LIMITED_KEY: keys.limitedKey
      },
      stdio: ["ignore", "pipe", "pipe"]
    })
    let [said, complained] = ["", ""]
    child.stdout.setEncoding("utf8").on("data", (text: string) => void (said += text))
    child.stderr.setEncoding("utf8").on("data", (text: string) => void (complained += text))
    const clear = () => rmSync(home, { recursive: true, force: true, maxRetries: 5 })
    child.once("error", (cause) =>
      resume(Effect.fail(new TestServerFailed({ detail: cause.message, cause })))
    )
    child.once("close", (code) => {
      clear()
      resume(
        code === 0
          ? Effect.succeed(said)
          : Effect.fail(new TestServerFailed({ detail: `${script.script}: ${complained.slice(-2000)}` }))
      )
    })
    return Effect.sync(() => {
      child.kill("SIGKILL")
      clear()
    })
  }).pipe(
    Effect.timeout("8 minutes"),
    Effect.mapError(
      (cause) =>
        new TestServerFailed({ detail: `${script.script} ${script.args.join(" ")}: ${String(cause)}`, cause })
    )
  )
})

export const runClient = Effect.fnUntraced(function* (script: ClientScript, keys: Keys) {
  const said = yield* output(script, keys)
  const results: Array<Result> = []
  // A client may print lines of its own.
  for (const line of said.split("\n").filter((line) => line.startsWith('{"client"'))) {
    results.push({ ...(yield* readLine(line)), language: languageOf(script) })
  }
  return results
})
