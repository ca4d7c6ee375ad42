/**
 * Finds the database and the model server: from the environment, or from the file that a running gateway with an embedded
 * database keeps in `DATA_DIR`.
 */
import { Effect, Option } from "effect"
import { readRuntime } from "../src/infra/embedded/RuntimeFile.ts"
import { localBackendUrl, table, variablesOf } from "../src/Settings.ts"
import { settingsFrom, startupError } from "../src/startup/StartupError.ts"

const noDatabase = startupError(
  'no database: set DATABASE_URL, or start the gateway with "npm start" in this folder and keep it running'
)

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
  Effect.suspend(() =>
    settingsFrom(Object.fromEntries(entries.flatMap(variablesOf).map((name) => [name, process.env[name]])))
  )

export const settings = readOnly(used)

const one = <K extends keyof typeof table>(setting: K) =>
  Effect.map(readOnly([table[setting]]), (values) => values[setting])

/** `REDIS_URL`; undefined: the gateway counts in its own memory. Only `status`, `doctor` and `reconcile` use Redis. */
export const cacheUrl = one("redisUrl")

/** `CONCURRENCY_LEASE_S`. Its default, where the gateway runs elsewhere. */
export const leaseS = one("concurrencyLeaseS")

/** Where warnings of budgets go, for a gateway of this environment. */
export const alertWebhook = readOnly([table.alertWebhookUrl, table.alertWebhookSecret])

/** `KEY_FRESHNESS_MS`. Its default, where the gateway runs elsewhere. */
export const freshnessMs = one("keyFreshnessMs")

/** The most tokens of an answer that the gateway of this environment admits. Its default, where it runs elsewhere. */
export const outputCap = one("numPredictCap")

export const databaseAddress = Effect.gen(function* () {
  const { dataDir, databaseUrl } = yield* settings
  if (databaseUrl !== undefined) return databaseUrl
  const runtime = yield* readRuntime(dataDir)
  return Option.isNone(runtime) ? yield* noDatabase : runtime.value.database
})

export const backendUrl = Effect.gen(function* () {
  const { backendUrl, dataDir } = yield* settings
  if (backendUrl !== undefined) return backendUrl
  const fromGateway = Option.flatMapNullishOr(yield* readRuntime(dataDir), (runtime) => runtime.backendUrl)
  return Option.match(fromGateway, { onNone: () => localBackendUrl, onSome: (url) => new URL(url) })
})
