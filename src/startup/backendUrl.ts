/** Finds a model server when `BACKEND_URL` is not set: the one on this machine, else the built-in demo. */
import { Effect, type Scope } from "effect"
import { makeDemoBackend } from "../backend/demo/DemoBackend.ts"
import { decodeTags } from "../backend/ollama/decodeTags.ts"
import { localBackendUrl } from "../Settings.ts"

const answers = Effect.tryPromise((signal) =>
  fetch(new URL("/api/version", localBackendUrl), { signal, redirect: "error" })
).pipe(
  Effect.tap((response) => Effect.promise(() => response.arrayBuffer())),
  Effect.map((response) => response.ok),
  Effect.timeout("1 second"),
  Effect.orElseSucceed(() => false)
)

export interface FoundBackend {
  readonly url: URL
  readonly what: string
}

export const findBackend: Effect.Effect<FoundBackend, unknown, Scope.Scope> = Effect.gen(function* () {
  if (yield* answers) return { url: localBackendUrl, what: localBackendUrl.origin }
  const demo = yield* makeDemoBackend
  return { url: new URL(demo.url), what: `built-in demo (nothing answers at ${localBackendUrl.origin})` }
})

/** The first model that can chat, for the lines to paste; a placeholder when there is none. */
export const chatModelAt = (backend: URL): Effect.Effect<string> =>
  Effect.tryPromise((signal) =>
    fetch(new URL("/api/tags", backend), { signal, redirect: "error" }).then((response) => response.text())
  ).pipe(
    Effect.map(
      (text) =>
        decodeTags(text)?.find((model) => model.capabilities?.includes("completion") ?? true)?.name ??
        "<a model>"
    ),
    Effect.timeout("2 seconds"),
    Effect.orElseSucceed(() => "<a model>")
  )
