/** The binary of the real model server: OLLAMA_BIN, or one that is built where Go is. */
import { existsSync } from "node:fs"
import { Effect } from "effect"
import { TestServerFailed } from "../../test/support/servers/processes.ts"
import { binaryPath, buildOllama, missing } from "./build.ts"

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
  return yield* buildOllama
})
