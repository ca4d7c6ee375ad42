/** Finds a model server when `BACKEND_URL` is not set: the one on this machine, else the built-in demo. */
import { Console, Effect, Schedule, type Scope } from "effect"
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
  readonly isDemo: boolean
}

export const findBackend: Effect.Effect<FoundBackend, unknown, Scope.Scope> = Effect.gen(function* () {
  if (yield* answers) return { url: localBackendUrl, what: localBackendUrl.origin, isDemo: false }
  const demo = yield* makeDemoBackend
  const what = `built-in demo (nothing answers at ${localBackendUrl.origin})`
  return { url: new URL(demo.url), what, isDemo: true }
})

/** Says once that a model server has come, which the demo stands in for. `asked` is for tests. */
export const watchForServer = (asked: Effect.Effect<boolean> = answers): Effect.Effect<void> =>
  asked.pipe(
    Effect.repeat({ until: (found) => found, schedule: Schedule.spaced("5 seconds") }),
    Effect.andThen(
      Console.log(
        `A model server answers at ${localBackendUrl.origin} now. Stop this gateway and run "npm start" again to use it instead of the demo.`
      )
    )
  )

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
