/**
 * What the gateway stands on: the database and the model server that the settings name, or, outside production, the
 * ones it brings itself.
 */
import * as path from "node:path"
import { Effect, type Scope } from "effect"
import { embeddedPostgres } from "../infra/embedded/EmbeddedPostgres.ts"
import type { DatabaseAddress, SocketAddress } from "../infra/Postgres.ts"
import type { SettingsValues } from "../Settings.ts"
import { findBackend, type FoundBackend } from "./backendUrl.ts"
import { type BootFailed, bootFailed } from "./StartupError.ts"

export interface Ground {
  readonly database: DatabaseAddress
  /** set when the database is this process's own */
  readonly embedded:
    | { readonly socket: SocketAddress; readonly dataDir: string; readonly exited: Effect.Effect<void> }
    | undefined
  readonly backend: FoundBackend
}

export const makeGround = Effect.fnUntraced(function* (
  settings: SettingsValues
): Effect.fn.Return<Ground, BootFailed, Scope.Scope> {
  const backend =
    settings.backendUrl === undefined
      ? yield* Effect.mapError(findBackend, () =>
          bootFailed("the built-in demo backend could not be started")
        )
      : { url: settings.backendUrl, what: settings.backendUrl.origin }
  if (settings.databaseUrl !== undefined)
    return { database: settings.databaseUrl, embedded: undefined, backend }
  const dataDir = path.resolve(settings.dataDir)
  const { exited, ...socket } = yield* Effect.mapError(embeddedPostgres({ dataDir }), (error) =>
    bootFailed(error.message)
  )
  return { database: socket, embedded: { socket, dataDir, exited }, backend }
})
