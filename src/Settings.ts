/**
 * Reads the settings from the environment, once at start. All problems are reported at once, one line each, with the
 * setting, the kind of the given value and the expected one. The value itself is never repeated, because it may be a secret.
 */
import { BlockList, isIP } from "node:net"
import { DateTime, Option, Redacted, Result, Schema, Struct } from "effect"
import { errorBodyForms, type ExtraSurface, extraSurfaces } from "./domain/Surface.ts"
import { isRedisUrl, readPostgresTls, readRedisTls, type TlsProblem } from "./infra/tls.ts"
import { type Environment, findMisspelt, type Problem, readSecretFiles } from "./infra/environment.ts"

export interface Setting<A> {
  readonly name: string
  /** unit or shape, for `docs/reference.md` and for problems */
  readonly expected: string
  /** what `docs/reference.md` prints as the default */
  readonly shown: string
  /** `file`: where the text was */
  readonly read: (text: string, file?: string) => A | undefined
  readonly fallback: A
  /** whether `<name>_FILE` may name a file with the value */
  readonly secret: boolean
}

const setting = <A>(
  name: string,
  expected: string,
  fallback: NoInfer<A>,
  read: (text: string) => A | undefined,
  shown = String(fallback)
): Setting<A> => ({ name, expected, shown, read, fallback, secret: false })

/** The largest `CONCURRENCY_LEASE_S`. Who reads counters of gateways with another setting shortens no lease with it. */
export const longestLeaseS = 3600

const integer = (name: string, fallback: number, unit: string, minimum: number, maximum: number) =>
  setting<number>(
    name,
    `${unit.startsWith("a ") ? unit : `a whole number of ${unit}`}, ${minimum} to ${maximum}`,
    fallback,
    (text) => {
      const number = /^-?\d{1,15}$/.test(text) ? Number(text) : Number.NaN
      return number >= minimum && number <= maximum ? number : undefined
    }
  )

/** A setting without a default. `shown` says what holds when it is unset. */
const optionalInteger = (name: string, unit: string, minimum: number, maximum: number, shown: string) => {
  const { expected, read } = integer(name, 0, unit, minimum, maximum)
  return setting<number | undefined>(name, expected, undefined, read, shown)
}

const flag = <A extends boolean | undefined>(name: string, fallback: A, shown: string) =>
  setting<boolean | A>(
    name,
    "true or false",
    fallback,
    (text) => (text === "true" || text === "1" ? true : text === "false" || text === "0" ? false : undefined),
    shown
  )

/** The default address of Ollama. */
export const localBackendUrl = new URL("http://127.0.0.1:11434")

const isUrl = (text: string, protocols: ReadonlyArray<string>): boolean =>
  URL.canParse(text) && protocols.includes(new URL(text).protocol)

/** Credentials do not belong into an address that is no secret: it is printed and logged. */
const isOpenUrl = (text: string): boolean => {
  if (!isUrl(text, ["http:", "https:"])) return false
  const { password, username } = new URL(text)
  return username === "" && password === ""
}

const secret = (
  name: string,
  expected: string,
  isOne: (text: string) => boolean
): Setting<Redacted.Redacted | undefined> => ({
  name,
  expected,
  shown: "unset",
  read: (text, label) => (isOne(text) ? Redacted.make(text, { label }) : undefined),
  fallback: undefined,
  secret: true
})

const choice = <const A extends string>(name: string, fallback: NoInfer<A>, options: ReadonlyArray<A>) =>
  setting<A>(name, `one of ${options.join(", ")}`, fallback, (text) =>
    options.find((option) => option === text.toLowerCase())
  )

/** A list of CIDR ranges or single addresses. An empty list trusts no proxy. */
const addresses = (text: string): BlockList | undefined => {
  const list = new BlockList()
  for (const entry of text.split(",").map((part) => part.trim())) {
    const [address = "", bits, ...rest] = entry.split("/")
    const family = isIP(address)
    const prefix = bits === undefined ? (family === 6 ? 128 : 32) : /^\d{1,3}$/.test(bits) ? Number(bits) : -1
    if (family === 0 || rest.length > 0 || prefix < 0 || prefix > (family === 6 ? 128 : 32)) return undefined
    list.addSubnet(address, prefix, family === 6 ? "ipv6" : "ipv4")
  }
  return list
}

const isExtraSurface = Schema.is(Schema.Literals(extraSurfaces))

/** A list of surfaces. */
const surfaces = (text: string): ReadonlySet<ExtraSurface> | undefined => {
  const entries = text.split(",").map((part) => part.trim())
  return entries.every(isExtraSurface) ? new Set(entries) : undefined
}

const day = 86_400
const msPerDay = day * 1000

/** All settings, in the order of `docs/reference.md`. */
export const table = {
  host: setting<string>("HOST", "an IP address", "127.0.0.1", (text) =>
    isIP(text) === 0 ? undefined : text
  ),
  port: integer("PORT", 8080, "a TCP port", 0, 65_535),
  databaseUrl: secret("DATABASE_URL", "a postgres:// URL", (text) =>
    isUrl(text, ["postgres:", "postgresql:"])
  ),
  databaseConnections: integer("DATABASE_CONNECTIONS", 10, "connections", 4, 1000),
  redisUrl: secret("REDIS_URL", "a redis:// or rediss:// URL of one server, no Redis Cluster", isRedisUrl),
  backendUrl: setting<URL | undefined>(
    "BACKEND_URL",
    "an http:// or https:// URL without user, password and path",
    undefined,
    (text) => (isOpenUrl(text) && new URL(text).pathname === "/" ? new URL(text) : undefined),
    "unset"
  ),
  dataDir: setting<string>("DATA_DIR", "a folder", "./.tollgate", (text) => text),
  timezone: setting<string>("TIMEZONE", "an IANA time zone, such as Europe/Berlin", "UTC", (text) =>
    /^[A-Za-z]/.test(text) ? DateTime.zoneMakeNamed(text).pipe(Option.getOrUndefined)?.id : undefined
  ),
  keyNamespace: setting<string>(
    "KEY_NAMESPACE",
    "three characters: two letters or digits, then _",
    "tg_",
    (text) => (/^[A-Za-z0-9]{2}_$/.test(text) ? text : undefined)
  ),
  maxRequestBodyBytes: integer("MAX_REQUEST_BODY_BYTES", 262_144, "bytes", 1024, 67_108_864),
  memoryMaxBytes: optionalInteger(
    "MEMORY_MAX_BYTES",
    "bytes",
    268_435_456,
    68_719_476_736,
    "the container's limit, else half of the machine's memory, at most 2147483648"
  ),
  discoveryRefreshS: integer("MODEL_DISCOVERY_REFRESH_S", 30, "seconds", 1, day),
  discoveryTtlS: integer("MODEL_DISCOVERY_CACHE_TTL_S", 120, "seconds", 1, day),
  playgroundEnabled: flag("PLAYGROUND_ENABLED", undefined, "false (embedded mode: true)"),
  promptLogDefaultRetentionDays: integer("PROMPT_LOG_DEFAULT_RETENTION_DAYS", 30, "days", 1, 3650),
  auditRetentionDays: optionalInteger("AUDIT_RETENTION_DAYS", "days", 1, 36_500, "unset: for ever"),
  defaultRpm: integer("DEFAULT_RPM", 60, "requests per minute", 1, 2_147_483_647),
  defaultTpm: integer("DEFAULT_TPM", 1_000_000, "tokens per minute", 1, 2_147_483_647),
  defaultConcurrent: integer("DEFAULT_CONCURRENT", 8, "requests at a time", 1, 2_147_483_647),
  numPredictCap: integer("NUM_PREDICT_CAP", 65_536, "tokens", 1, 1_000_000),
  outputAboveCap: choice("OUTPUT_ABOVE_CAP", "refuse", ["refuse", "lower"]),
  toolsMax: integer("TOOLS_MAX", 128, "tools of a request", 1, 1024),
  errorBodies: choice("ERROR_BODIES", "specification", errorBodyForms),
  backendMaxConcurrent: optionalInteger("BACKEND_MAX_CONCURRENT", "requests", 1, 100_000, "unset: no queue"),
  queueMaxWaitMs: integer("QUEUE_MAX_WAIT_MS", 30_000, "milliseconds", 1, msPerDay),
  queueMaxDepth: integer("QUEUE_MAX_DEPTH", 256, "requests", 0, 100_000),
  backendMaxLoadedModels: optionalInteger("BACKEND_MAX_LOADED_MODELS", "models", 1, 64, "unset: learned"),
  modelTurnMaxMs: integer("MODEL_TURN_MAX_MS", 30_000, "milliseconds", 1, msPerDay),
  numCtxCap: optionalInteger("NUM_CTX_CAP", "tokens", 4, 10_000_000, "unset: a client's num_ctx is dropped"),
  promptOverflow: choice("PROMPT_OVERFLOW", "warn", ["warn", "refuse"]),
  backendContextLength: optionalInteger(
    "BACKEND_CONTEXT_LENGTH",
    "tokens",
    4,
    10_000_000,
    "unset: not known"
  ),
  extraSurfaces: setting<ReadonlySet<ExtraSurface>>(
    "EXTRA_SURFACES",
    `a comma list of ${extraSurfaces.join(", ")}`,
    new Set(),
    surfaces,
    "empty"
  ),
  trustedProxies: setting<BlockList>(
    "TRUSTED_PROXIES",
    "a comma list of IP addresses or CIDR ranges",
    new BlockList(),
    addresses,
    "empty"
  ),
  keyFreshnessMs: integer("KEY_FRESHNESS_MS", 1000, "milliseconds", 50, 60_000),
  concurrencyLeaseS: integer("CONCURRENCY_LEASE_S", 30, "seconds", 3, longestLeaseS),
  backendConnectTimeoutMs: integer("BACKEND_CONNECT_TIMEOUT_MS", 3000, "milliseconds", 10, 60_000),
  backendFirstByteTimeoutMs: integer("BACKEND_FIRST_BYTE_TIMEOUT_MS", 300_000, "milliseconds", 10, msPerDay),
  backendIdleTimeoutMs: integer("BACKEND_IDLE_TIMEOUT_MS", 120_000, "milliseconds", 10, msPerDay),
  requestMaxDurationMs: integer("REQUEST_MAX_DURATION_MS", 1_800_000, "milliseconds", 100, msPerDay),
  clientStallTimeoutMs: integer("CLIENT_STALL_TIMEOUT_MS", 60_000, "milliseconds", 100, msPerDay),
  maxConnectionsPerAddress: integer("MAX_CONNECTIONS_PER_ADDRESS", 4096, "connections", 1, 16_384),
  anonymousRowsPerMinute: integer("ANONYMOUS_ROWS_PER_MINUTE", 10, "audit rows", 0, 1_000_000),
  breakerFailures: integer("BREAKER_FAILURES", 5, "failures", 1, 1000),
  breakerOpenMs: integer("BREAKER_OPEN_MS", 30_000, "milliseconds", 100, 3_600_000),
  shutdownGraceMs: integer("SHUTDOWN_GRACE_MS", 25_000, "milliseconds", 0, 3_600_000),
  shutdownDrainMs: optionalInteger(
    "SHUTDOWN_DRAIN_MS",
    "milliseconds",
    0,
    600_000,
    "3000 (embedded mode: 0)"
  ),
  logLevel: choice("LOG_LEVEL", "info", ["trace", "debug", "info", "warn", "error", "fatal", "none"]),
  alertWebhookUrl: secret("ALERT_WEBHOOK_URL", "an http(s):// URL without user and password", isOpenUrl),
  alertWebhookSecret: secret("ALERT_WEBHOOK_SECRET", "16 characters or more", (key) => key.length >= 16),
  otlpEndpoint: setting<URL | undefined>(
    "OTLP_ENDPOINT",
    "an http:// or https:// URL without user and password",
    undefined,
    (text) => (isOpenUrl(text) ? new URL(text) : undefined),
    "unset"
  ),
  otlpSampleRatio: setting<number>("OTLP_SAMPLE_RATIO", "a number, 0 to 1", 1, (text) =>
    /^(?:[01]|0?\.\d{1,9}|1\.0{1,9})$/.test(text) ? Number(text) : undefined
  )
}

type Values = { readonly [K in keyof typeof table]: (typeof table)[K] extends Setting<infer A> ? A : never }

export interface SettingsValues extends Values {
  /** `NODE_ENV=production`: no embedded database, counters or demo backend, ever */
  readonly production: boolean
}

interface Read extends Struct.Lambda {
  <A>(entry: Setting<A>): A
  readonly "~lambda.out": this["~lambda.in"] extends Setting<infer A> ? A : never
}

const settings = Object.values(table)
const names = settings.map(({ name }) => name)
const secretNames = settings.filter(({ secret }) => secret).map(({ name }) => name)

/** The environment variables of a setting. */
export const variablesOf = ({ name, secret }: Pick<Setting<unknown>, "name" | "secret">) =>
  secret ? [name, `${name}_FILE`] : [name]

/** Describes the given value without repeating it. */
const shapeOf = (text: string | undefined): string =>
  text === undefined
    ? "nothing"
    : text === ""
      ? "an empty value"
      : /^-?\d+$/.test(text)
        ? "a number out of range"
        : `text of ${text.length} characters`

/**
 * Reads all settings, or returns all problems. An empty variable counts as absent. A misspelt name is a problem, because
 * otherwise the default would apply silently.
 */
export const readSettings = (given: Environment): Result.Result<SettingsValues, ReadonlyArray<Problem>> => {
  const { env, problems } = readSecretFiles(given, secretNames)
  problems.push(...findMisspelt(given, names, secretNames))
  const values: SettingsValues = {
    production: env["NODE_ENV"] === "production",
    ...Struct.map(
      table,
      Struct.lambda<Read>((entry) => {
        const text = env[entry.name]
        if (text === undefined || text === "") return entry.fallback
        const read = entry.read(text, entry.secret ? given[`${entry.name}_FILE`] : undefined)
        if (read !== undefined) return read
        problems.push({ setting: entry.name, given: shapeOf(text), expected: entry.expected })
        return entry.fallback
      })
    )
  }
  const refuse = ({ name }: Setting<unknown>, problem: TlsProblem) =>
    problems.push({ setting: name, ...problem })
  for (const [entry, url, read] of [
    [table.databaseUrl, values.databaseUrl, readPostgresTls],
    [table.redisUrl, values.redisUrl, readRedisTls]
  ] as const) {
    const tls = url === undefined ? undefined : read(Redacted.value(url))
    if (tls !== undefined && Result.isFailure(tls)) refuse(entry, tls.failure)
  }
  if (values.discoveryTtlS < values.discoveryRefreshS)
    refuse(table.discoveryTtlS, {
      given: "less than MODEL_DISCOVERY_REFRESH_S",
      expected: "at least MODEL_DISCOVERY_REFRESH_S"
    })
  if (values.production)
    for (const entry of [table.databaseUrl, table.redisUrl, table.backendUrl])
      if (env[entry.name] === undefined || env[entry.name] === "")
        refuse(entry, { given: "nothing", expected: `${entry.expected} (NODE_ENV=production)` })
  return problems.length === 0 ? Result.succeed(values) : Result.fail(problems)
}

/** One line for each problem, for the terminal. */
export const describeProblem = (problem: Problem): string =>
  `${problem.setting}: got ${problem.given}, expected ${problem.expected}`

/** sysexits.h EX_CONFIG */
export const exitCodeConfiguration = 78
