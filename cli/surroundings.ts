/**
 * Where the database and the model server are: as the environment says, else as the gateway that runs on this
 * machine with its embedded database has noted in `DATA_DIR`.
 */
import { Data, Effect, Layer, Option, Result } from "effect"
import { layerCircuitBreaker } from "../src/backend/breaker.ts"
import { layerUndici } from "../src/backend/undici.ts"
import { assertSchema } from "../src/infra/Migrations.ts"
import { layerPostgres } from "../src/infra/Postgres.ts"
import { readRuntime } from "../src/infra/RuntimeFile.ts"
import { layerLive as layerRegistry } from "../src/registry/live.ts"
import { describeProblem, readSettings, table } from "../src/Settings.ts"

export class NoDatabase extends Data.TaggedError("NoDatabase") {
  override get message(): string {
    return 'no database: set DATABASE_URL, or start the gateway with "npm start" in this folder and keep it running'
  }
}

export class WrongSettings extends Data.TaggedError("WrongSettings")<{
  readonly lines: ReadonlyArray<string>
}> {}

/** A command reads these and nothing else: what it does not use may be missing or wrong. */
const used = [
  table.databaseUrl,
  table.backendUrl,
  table.dataDir,
  table.keyNamespace,
  table.defaultRpm,
  table.defaultTpm,
  table.defaultConcurrent,
  table.backendConnectTimeoutMs
].map((setting) => setting.name)

const settings = Effect.suspend(() => {
  const read = readSettings(Object.fromEntries(used.map((name) => [name, process.env[name]])))
  return Result.isSuccess(read)
    ? Effect.succeed(read.success)
    : Effect.fail(new WrongSettings({ lines: read.failure.map(describeProblem) }))
})

const address = Effect.gen(function* () {
  const { dataDir, databaseUrl } = yield* settings
  if (databaseUrl !== undefined) return databaseUrl
  const runtime = yield* readRuntime(dataDir)
  return Option.isNone(runtime) ? yield* new NoDatabase() : runtime.value.database
})

export const layerDatabase = Layer.unwrap(
  Effect.map(address, (url) => layerPostgres({ url, maxConnections: 1, applicationName: "tollgate-cli" }))
)

export const layerAdmin = Layer.unwrap(
  Effect.gen(function* () {
    const { defaultConcurrent, defaultRpm, defaultTpm, keyNamespace } = yield* settings
    return layerRegistry({
      namespace: keyNamespace,
      defaults: { rpm: defaultRpm, tpm: defaultTpm, concurrent: defaultConcurrent }
    })
  })
).pipe(Layer.provide(Layer.effectDiscard(assertSchema)), Layer.provide(layerDatabase))

const local = new URL("http://127.0.0.1:11434")

export const layerBackend = Layer.unwrap(
  Effect.gen(function* () {
    const { backendConnectTimeoutMs, backendUrl, dataDir } = yield* settings
    const noted = Option.flatMapNullishOr(yield* readRuntime(dataDir), (runtime) => runtime.backendUrl)
    return layerUndici({
      url: backendUrl ?? Option.match(noted, { onNone: () => local, onSome: (url) => new URL(url) }),
      connectTimeoutMs: backendConnectTimeoutMs,
      firstByteTimeoutMs: 10_000,
      idleTimeoutMs: 10_000
    }).pipe(Layer.provide(layerCircuitBreaker({ failures: 5, openMs: 1000 })))
  })
)
