/**
 * `npm run test:real`: the suites that need a real model server. Builds the server first, where there is none, so that
 * no test waits for it. Without one and without Go it says so in one line; with CI=true that is a failure.
 */
import { spawn } from "node:child_process"
import * as path from "node:path"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import { findOllama } from "./ollama/find.ts"

const root = path.resolve(import.meta.dirname, "..")

const vitest = Effect.callback<number>((resume) => {
  const words = ["run", "--config", "vitest.real.config.ts", ...process.argv.slice(2)]
  const child = spawn(process.execPath, [path.join(root, "node_modules/vitest/vitest.mjs"), ...words], {
    cwd: root,
    stdio: "inherit"
  })
  child.once("close", (code) => resume(Effect.succeed(code ?? 1)))
  return Effect.sync(() => child.kill())
})

const demanded = process.env["CI"] === "true"

const prepare = (process.env["OLLAMA_URL"] ?? "") === "" ? Effect.asVoid(findOllama) : Effect.void

const program = prepare.pipe(
  Effect.matchEffect({
    onFailure: ({ message }) => Effect.as(Console.error(message), demanded ? 1 : 0),
    onSuccess: () => vitest
  }),
  Effect.tap((code) => Effect.sync(() => void (process.exitCode = code)))
)

NodeRuntime.runMain(program)
