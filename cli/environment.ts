/**
 * Finds the database and the model server: from the environment, or from the file that a running gateway with an embedded
 * database keeps in `DATA_DIR`.
 */
import { Data, Effect, Option, Result } from "effect"
import { readRuntime } from "../src/infra/embedded/RuntimeFile.ts"
import { describeProblem, localBackendUrl, readSettings, table, variablesOf } from "../src/Settings.ts"

export class NoDatabase extends Data.TaggedError("NoDatabase") {
  override get message(): string {
    return 'no database: set DATABASE_URL, or start the gateway with "npm start" in this folder and keep it running'
  }
}

export class WrongSettings extends Data.TaggedError("WrongSettings")<{
  readonly lines: ReadonlyArray<string>
}> {}

/** The only settings that commands read. The others may be missing or wrong. */
const used = [
  table.databaseUrl,
  table.backendUrl,
  table.dataDir,
  table.keyNamespace,
  table.defaultRpm,
  table.defaultTpm,
  table.defaultConcurrent
].flatMap(variablesOf)

export const settings = Effect.suspend(() => {
  const read = readSettings(Object.fromEntries(used.map((name) => [name, process.env[name]])))
  return Result.isSuccess(read)
    ? Effect.succeed(read.success)
    : Effect.fail(new WrongSettings({ lines: read.failure.map(describeProblem) }))
})

export const databaseAddress = Effect.gen(function* () {
  const { dataDir, databaseUrl } = yield* settings
  if (databaseUrl !== undefined) return databaseUrl
  const runtime = yield* readRuntime(dataDir)
  return Option.isNone(runtime) ? yield* new NoDatabase() : runtime.value.database
})

export const backendUrl = Effect.gen(function* () {
  const { backendUrl, dataDir } = yield* settings
  if (backendUrl !== undefined) return backendUrl
  const fromGateway = Option.flatMapNullishOr(yield* readRuntime(dataDir), (runtime) => runtime.backendUrl)
  return Option.match(fromGateway, { onNone: () => localBackendUrl, onSome: (url) => new URL(url) })
})
