/**
 * Clients that generators make of `openapi.json`: each is made, compiles, and holds a chat on every surface of /v1. The model server
 * is the tests' own.
 */
import { execFile } from "node:child_process"
import { cpSync, readFileSync, symlinkSync } from "node:fs"
import * as path from "node:path"
import { promisify } from "node:util"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { Gateway, layerGateway, newKey } from "../test/support/Gateway.ts"
import { canBuild, installPython, keyed, npmCi, run, sourcesOf } from "./clients/install.ts"
import { makeOnce } from "./ollama/cache.ts"

const here = path.join(import.meta.dirname, "generators")
const document = path.resolve(import.meta.dirname, "../openapi.json")

const execute = promisify(execFile)

/** The folder with all clients. It is made anew when the document, a chat or a pin is another one. */
const made = Effect.gen(function* () {
  const python = yield* installPython("generators")
  const node = yield* npmCi("generators", here)
  const sources = [...sourcesOf(here), document].map((file) => readFileSync(file, "utf8")).join("\0")
  const folder = keyed("generated", sources)
  yield* makeOnce(folder, (unfinished) =>
    Effect.gen(function* () {
      cpSync(here, unfinished, { recursive: true })
      symlinkSync(path.join(node, "node_modules"), path.join(unfinished, "node_modules"))
      const bin = (name: string) => path.join(node, "node_modules/.bin", name)
      const generate = [
        "-m",
        "openapi_python_client",
        "generate",
        "--output-path",
        "python",
        "--fail-on-warning"
      ]
      yield* run(python, [...generate, "--path", document, "--config", "python.yaml"], unfinished)
      yield* run(bin("openapi-typescript"), [document, "-o", "api.d.ts"], unfinished)
      const checks = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022"]
      yield* run(bin("tsc"), [...checks, "--types", "node", "chat.mts"], unfinished)
      yield* run("mkdir", ["client"], unfinished)
      const go = ["tool", "oapi-codegen", "-generate", "types,client", "-package", "client"]
      yield* run("go", [...go, "-o", "client/client.go", document], unfinished)
      yield* run("go", ["build", "-o", "chat", "."], unfinished)
    })
  )
  return [
    [python, path.join(folder, "chat.py")],
    [process.execPath, path.join(folder, "chat.mts")],
    [path.join(folder, "chat")]
  ] as const
})

layer(layerGateway({ EXTRA_SURFACES: "responses,messages" }), { excludeTestServices: true })(
  "generated clients",
  (it) => {
    const hasGo = canBuild({ environment: "go" })
    it.effect.skipIf(!hasGo)(
      "when generators read openapi.json, then their clients compile and hold a chat",
      () =>
        Effect.gen(function* () {
          const [{ url }, { secret }] = [yield* Gateway, yield* newKey()]
          for (const [command, ...args] of yield* made) {
            const env = { ...process.env, URL: url, KEY: secret }
            const { stderr, stdout } = yield* Effect.promise(() => execute(command, args, { env }))
            assert.deepStrictEqual(
              stdout.trim().split("\n"),
              ["Hello world!", "Hello world!", "Hello world!"],
              stderr
            )
          }
        })
    )
  }
)
