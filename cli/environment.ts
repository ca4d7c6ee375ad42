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
}> {
  override get message(): string {
    return this.lines.join("; ")
  }
}

/** The only settings that commands read. The others may be missing or wrong. */
const used = [
  table.databaseUrl,
  table.backendUrl,
  table.dataDir,
  table.keyNamespace,
  table.defaultRpm,
  table.defaultTpm,
  table.defaultConcurrent
]

const readOnly = (entries: ReadonlyArray<Parameters<typeof variablesOf>[0]>) =>
  Effect.suspend(() => {
    const variables = entries.flatMap(variablesOf)
    const read = readSettings(Object.fromEntries(variables.map((name) => [name, process.env[name]])))
    return Result.isSuccess(read)
      ? Effect.succeed(read.success)
      : Effect.fail(new WrongSettings({ lines: read.failure.map(describeProblem) }))
  })

export const settings = readOnly(used)

const one = <K extends keyof typeof table>(setting: K) =>
  Effect.map(readOnly([table[setting]]), (values) => values[setting])

/** `REDIS_URL`; undefined: the gateway counts in its own memory. Only `status`, `doctor` and `reconcile` use Redis. */
export const cacheUrl = one("redisUrl")

/** `CONCURRENCY_LEASE_S`. Its default, where the gateway runs elsewhere. */
export const leaseS = one("concurrencyLeaseS")

/** The most tokens of an answer that the gateway of this environment admits. Its default, where it runs elsewhere. */
export const outputCap = one("numPredictCap")

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
