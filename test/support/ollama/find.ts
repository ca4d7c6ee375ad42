/** The binary of the real model server: OLLAMA_BIN, or the pinned version, built where Go is. */
import { Console, Effect } from "effect"
import { TestServerFailed } from "../servers/processes.ts"
import { binaryPath, buildOllama, missing } from "./build.ts"
import { existsSync } from "node:fs"

/** Fails, in one line, where there is none and none can be built. */
export const findOllama: Effect.Effect<string, TestServerFailed> = Effect.gen(function* () {
  const given = process.env["OLLAMA_BIN"]
  if (given !== undefined && given !== "") return given
  if (existsSync(binaryPath())) return binaryPath()
  const why = yield* Effect.promise(missing)
  if (why !== undefined) {
    return yield* new TestServerFailed({
      detail: `no real model server: ${why}. Or set OLLAMA_BIN or OLLAMA_URL.`
    })
  }
  const services = yield* Effect.context()
  return yield* Effect.tryPromise({
    try: () => buildOllama((line) => Effect.runSyncWith(services)(Console.log(line))),
    catch: (cause) => new TestServerFailed({ detail: "the real model server could not be built", cause })
  })
})
