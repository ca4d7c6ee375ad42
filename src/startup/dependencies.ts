/**
 * Resolves the database and the model server: those of the settings, or, outside production, an embedded database, and the
 * model server on this machine or the built-in demo.
 */
import * as path from "node:path"
import { Console, Effect, Schedule, type Scope } from "effect"
import { makeDemoBackend } from "../backend/demo/DemoBackend.ts"
import { decodeTags } from "../backend/ollama/decodeModels.ts"
import { embeddedPostgres } from "../infra/embedded/EmbeddedPostgres.ts"
import type { DatabaseAddress, SocketAddress } from "../infra/Postgres.ts"
import { explain } from "../observability/explain.ts"
import { localBackendUrl, type SettingsValues } from "../Settings.ts"
import { type StartupError, startupError } from "./StartupError.ts"

const answers = Effect.tryPromise((signal) =>
  fetch(new URL("/api/version", localBackendUrl), { signal, redirect: "error" })
).pipe(
  Effect.tap((response) => Effect.promise(() => response.arrayBuffer())),
  Effect.map((response) => response.ok),
  Effect.timeout("1 second"),
  Effect.orElseSucceed(() => false)
)

interface FoundBackend {
  readonly url: URL
  readonly what: string
  readonly isDemo: boolean
}

const findBackend: Effect.Effect<FoundBackend, unknown, Scope.Scope> = Effect.gen(function* () {
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

export interface Dependencies {
  readonly database: DatabaseAddress
  /** set when this process runs the database itself */
  readonly embedded:
    | { readonly socket: SocketAddress; readonly dataDir: string; readonly exited: Effect.Effect<void> }
    | undefined
  readonly backend: FoundBackend
}

export const resolveDependencies = Effect.fnUntraced(function* (
  settings: SettingsValues
): Effect.fn.Return<Dependencies, StartupError, Scope.Scope> {
  const backend =
    settings.backendUrl === undefined
      ? yield* Effect.mapError(findBackend, (error) =>
          startupError(`the built-in demo backend could not be started: ${explain(error)}`)
        )
      : { url: settings.backendUrl, what: settings.backendUrl.origin, isDemo: false }
  if (settings.databaseUrl !== undefined)
    return { database: settings.databaseUrl, embedded: undefined, backend }
  const dataDir = path.resolve(settings.dataDir)
  const { exited, ...socket } = yield* Effect.mapError(embeddedPostgres({ dataDir }), (error) =>
    startupError(error.message)
  )
  return { database: socket, embedded: { socket, dataDir, exited }, backend }
})
