/**
 * Resolves the database and the model server: those of the settings, or, outside production, an embedded database and a
 * local or demo model server.
 */
import * as path from "node:path"
import { Effect, type Scope } from "effect"
import { embeddedPostgres } from "../infra/embedded/EmbeddedPostgres.ts"
import type { DatabaseAddress, SocketAddress } from "../infra/Postgres.ts"
import type { SettingsValues } from "../Settings.ts"
import { explain } from "../observability/explain.ts"
import { findBackend, type FoundBackend } from "./backendUrl.ts"
import { type StartupError, startupError } from "./StartupError.ts"

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
