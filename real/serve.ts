/**
 * A real model server to try things against, `npm run ollama`: the pinned one with the models of the tests, until it
 * is interrupted. OLLAMA_BIN names another binary, and OLLAMA_… settings of the environment reach the server.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Console, Effect } from "effect"
import { definitions } from "./ollama/modelfiles.ts"
import { makeOllamaServer } from "./ollama/OllamaServer.ts"
import { findOllama } from "./ollama/find.ts"
import { linkedStore } from "./ollama/store.ts"

const settings = Object.fromEntries(
  Object.entries(process.env).flatMap(([name, value]) =>
    name.startsWith("OLLAMA_") && value !== undefined ? [[name, value]] : []
  )
)

const serve = Effect.gen(function* () {
  const binary = yield* findOllama
  const server = yield* makeOllamaServer({ binary, models: yield* linkedStore(binary), env: settings })
  yield* Console.log(`${server.url.origin} pid ${server.pid()}: ${Object.keys(definitions).join(", ")}`)
  return yield* Effect.never
}).pipe(Effect.scoped)

NodeRuntime.runMain(serve)
