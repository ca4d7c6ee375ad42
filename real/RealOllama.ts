/** The real model server of a test file: one of its own, or the one that OLLAMA_URL names. */
import { Context, Effect, Layer } from "effect"
import { findOllama } from "./ollama/find.ts"
import { definitions } from "./ollama/modelfiles.ts"
import { makeOllamaServer, type OllamaServer } from "./ollama/OllamaServer.ts"
import { createModels, linkedStore } from "./ollama/store.ts"
import type { TestServerFailed } from "../test/support/servers/processes.ts"

export class RealOllama extends Context.Service<RealOllama, Pick<OllamaServer, "url">>()("test/RealOllama") {}

/** A server that a test may stop and kill: never the one of OLLAMA_URL. */
export class OwnOllama extends Context.Service<OwnOllama, OllamaServer>()("test/OwnOllama") {}

export type Settings = Readonly<Record<string, string>>

const own = Effect.fnUntraced(function* (env: Settings) {
  const binary = yield* findOllama
  return yield* makeOllamaServer({ binary, models: yield* linkedStore(binary), env })
})

export const layerOwnOllama = (env: Settings = {}): Layer.Layer<OwnOllama, TestServerFailed> =>
  Layer.fresh(Layer.effect(OwnOllama, own(env)))

/** Adds the models it lacks to somebody's server; they stay there. */
const given = (url: URL) =>
  Effect.promise(async (signal) => {
    const answer = await fetch(new URL("/api/tags", url), { signal })
    const listed = await answer.text()
    const lacking = Object.keys(definitions).filter((name) => !listed.includes(`"${name}:latest"`))
    await createModels(url, lacking)
    return { url }
  })

export const layerRealOllama: Layer.Layer<RealOllama, TestServerFailed> = Layer.effect(
  RealOllama,
  Effect.suspend(() => {
    const url = process.env["OLLAMA_URL"]
    return url === undefined || url === "" ? own({}) : given(new URL(url))
  })
)

/** 24 of Ollama 0.24.0. */
export const minorVersion = ({ url }: Pick<OllamaServer, "url">): Effect.Effect<number> =>
  Effect.promise(async (signal) => {
    const answer = await fetch(new URL("/api/version", url), { signal })
    return Number(/"version":"0\.(\d+)/.exec(await answer.text())?.[1])
  })
