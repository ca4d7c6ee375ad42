/** Finds a model server when `BACKEND_URL` is not set: the one on this machine, else the built-in demo. */
import { Effect, Schema, type Scope } from "effect"
import { makeDemoBackend } from "../backend/demo/DemoBackend.ts"

const local = new URL("http://127.0.0.1:11434")

const answers = Effect.tryPromise((signal) =>
  fetch(new URL("/api/version", local), { signal, redirect: "error" })
).pipe(
  Effect.tap((response) => Effect.promise(() => response.arrayBuffer())),
  Effect.map((response) => response.ok),
  Effect.timeout("1 second"),
  Effect.catch(() => Effect.succeed(false))
)

export interface FoundBackend {
  readonly url: URL
  readonly what: string
}

export const findBackend: Effect.Effect<FoundBackend, unknown, Scope.Scope> = Effect.gen(function* () {
  if (yield* answers) return { url: local, what: local.origin }
  const demo = yield* makeDemoBackend
  return { url: new URL(demo.url), what: "built-in demo (nothing answers at http://127.0.0.1:11434)" }
})

const Tags = Schema.Struct({
  models: Schema.Array(
    Schema.Struct({
      name: Schema.String,
      capabilities: Schema.optionalKey(Schema.Array(Schema.String))
    })
  )
})

/** The first model that can chat, for the lines to paste; a placeholder when there is none. */
export const chatModelAt = (backend: URL): Effect.Effect<string> =>
  Effect.tryPromise((signal) =>
    fetch(new URL("/api/tags", backend), { signal, redirect: "error" }).then((response) => response.json())
  ).pipe(
    Effect.flatMap(Schema.decodeUnknownEffect(Tags)),
    Effect.map(
      ({ models }) =>
        models.find((model) => model.capabilities?.includes("completion") ?? true)?.name ?? "<a model>"
    ),
    Effect.timeout("2 seconds"),
    Effect.catch(() => Effect.succeed("<a model>"))
  )
