/**
 * The whole gateway on a real socket, a real Postgres and a real Redis, in front of a backend that does as it is told.
 * What a test does to it goes through the front door or through the Registry, as an operator's commands do.
 */
import { Context, Effect, Layer, Logger, Redacted, References, Result } from "effect"
import { HttpServer } from "effect/http"
import { layerApp } from "../../src/App.ts"
import { jsonLine, layerLogging } from "../../src/observability/logging.ts"
import type { EffectiveLimits } from "../../src/domain/Limits.ts"
import { layerRedis as layerRedisMeter } from "../../src/gates/meter/redis/RedisMeter.ts"
import { layerRedis } from "../../src/infra/Redis.ts"
import { layerPostgres as layerRegistry, Registry } from "../../src/admin/Registry.ts"
import { StoreTimeouts } from "../../src/infra/StoreTimeouts.ts"
import { readSettings, type SettingsValues } from "../../src/Settings.ts"
import { fake, type FakeBackend, makeFakeBackend } from "./FakeBackend.ts"
import { type Asked, ask } from "./posting.ts"
import { heard, secrets, type Witness } from "./invariants/Witness.ts"
import { layerTestPostgres } from "./TestPostgres.ts"
import { layerTestRedis, TestRedis } from "./TestRedis.ts"
import { eventually } from "./wait.ts"
import { quickHash } from "./quickHash.ts"
import { watch } from "./watch.ts"
import { sql } from "./sql.ts"

export { eventually } from "./wait.ts"

export class Fake extends Context.Service<Fake, FakeBackend>()("test/FakeBackend") {}

/** What the backend has installed from the start: discovery asks it once before the first request. */
export const installed = ["m:latest", "other:latest", "embedder:latest"]

export const layerFake: Layer.Layer<Fake> = Layer.effect(
  Fake,
  Effect.tap(Effect.orDie(makeFakeBackend), (fake) => Effect.sync(() => fake.setModels(installed)))
)

/** Where the gateway of a test listens. */
export class Gateway extends Context.Service<
  Gateway,
  { readonly url: string; readonly settings: SettingsValues }
>()("test/Gateway") {}

export type Environment = Readonly<Record<string, string>>

/** Quick where production is patient; a test that is about a figure sets its own. */
const hasty: Environment = {
  PORT: "0",
  LOG_LEVEL: "fatal",
  MODEL_DISCOVERY_REFRESH_S: "1",
  SHUTDOWN_GRACE_MS: "2000",
  // Attacks look for the row of each request.
  ANONYMOUS_ROWS_PER_MINUTE: "1000000"
}

/** Hears what is logged; prints it only where a test set a level of its own. */
const layerHearing = (settings: SettingsValues, env: Environment, lines: Array<string>) => {
  const ear = Logger.make<unknown, void>((options) => void lines.push(jsonLine.log(options)))
  return env["LOG_LEVEL"] === undefined
    ? Layer.merge(Logger.layer([ear]), Layer.succeed(References.MinimumLogLevel, "Info"))
    : Layer.provideMerge(Logger.layer([ear], { mergeWithExisting: true }), layerLogging(settings))
}

/** The gateway itself in front of `backendUrl`, on whatever database client and cache store the context has. */
export const layerGatewayBefore = (backendUrl: URL, env: Environment = {}) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const redis = yield* TestRedis
      const witness: Witness = { answers: [], lines: [] }
      const settings: SettingsValues = {
        ...Result.getOrThrow(readSettings({ ...hasty, ...env })),
        redisUrl: Redacted.make(redis.url),
        backendUrl
      }
      const gateway = Layer.effect(
        Gateway,
        Effect.map(HttpServer.HttpServer, (server) => ({
          url: HttpServer.formatAddress(server.address),
          settings
        }))
      ).pipe(Layer.provide(layerApp(settings, backendUrl)))
      const registry = layerRegistry({
        namespace: settings.keyNamespace,
        hash: quickHash,
        defaults: {
          rpm: settings.defaultRpm,
          tpm: settings.defaultTpm,
          concurrent: settings.defaultConcurrent
        }
      })
      const watching = Layer.effectDiscard(
        Effect.flatMap(Gateway, ({ url }) =>
          watch({
            url,
            backend: backendUrl,
            witness,
            patienceMs: settings.concurrencyLeaseS * 1000 + 10_000
          })
        )
      ).pipe(
        Layer.provide(
          layerRedisMeter({ leaseS: settings.concurrencyLeaseS }).pipe(
            Layer.provide(layerRedis({ url: Redacted.make(redis.url), commandTimeoutMs: 2000 }))
          )
        )
      )
      return watching.pipe(
        Layer.provideMerge(Layer.merge(gateway, registry)),
        Layer.provideMerge(layerHearing(settings, env, witness.lines))
      )
    })
  )

/**
 * In front of the backend that does as it is told. On a busy machine the first poll can come after the first request, which
 * is then a 403: discovery describes models only after it has published the list, so that is waited for.
 */
export const layerGatewayOn = (env: Environment = {}) =>
  Layer.unwrap(
    Effect.map(Fake, (fake) => {
      const discovered = eventually(
        Effect.sync(() => fake.descriptions.length),
        (asked) => asked > 0
      )
      return Layer.tap(layerGatewayBefore(new URL(fake.url), env), () => discovered)
    })
  )

const layerPatient = Layer.succeed(StoreTimeouts, {
  command: 20_000,
  keyRead: 20_000,
  open: 20_000,
  refuse: 20_000
})

/** As `layerGatewayOn`, on stores that are never down: on a busy machine they answer late, and that is no outage. */
export const layerPatientOn = (env: Environment = {}) => layerGatewayOn(env).pipe(Layer.provide(layerPatient))

/** Everything fresh: a database of its own, an empty Redis database, a backend, a gateway. */
export const layerGateway = (env: Environment = {}) =>
  layerPatientOn(env).pipe(
    Layer.provideMerge(Layer.fresh(layerFake)),
    Layer.provideMerge(layerTestPostgres()),
    Layer.provideMerge(Layer.fresh(layerTestRedis))
  )

/** Another replica on the stores of the test. */
export const otherReplica = (env: Environment = {}) =>
  Effect.map(Layer.build(Layer.fresh(layerPatientOn(env))), (built) => Context.get(built, Gateway))

/** Limits that get in nobody's way. */
export const generous: EffectiveLimits = { rpm: 100_000, tpm: 100_000_000, concurrent: 1000 }

let serial = 0

/** A tenant with all models and one key. */
export const newKey = Effect.fnUntraced(function* (
  options: Partial<EffectiveLimits> & {
    readonly scopes?: ReadonlyArray<string>
    readonly models?: ReadonlyArray<string>
  } = {}
) {
  const registry = yield* Registry
  const { scopes, models, ...limits } = options
  const tenant = `tenant-${++serial}`
  yield* registry.createTenant({ name: tenant, allowAllModels: models === undefined, ...generous, ...limits })
  if (models !== undefined) yield* registry.setModels(tenant, { models })
  const { secret, key } = yield* registry.createKey({
    tenant,
    name: "k",
    ...(scopes === undefined ? {} : { scopes })
  })
  secrets.add(secret)
  return { tenant, secret, prefix: key.prefix }
})

/** One request, its body read to the end. */
export const call = Effect.fnUntraced(function* (path: string, asked: Asked = {}) {
  const { url } = yield* Gateway
  const method = asked.method ?? (asked.body === undefined ? "GET" : "POST")
  const answer = yield* ask(new URL(path, url), asked)
  const { headers, status, text } = answer
  heard(url, {
    status,
    headers,
    body: text,
    bodiless: method === "HEAD",
    request: { method, target: path, raw: false }
  })
  return answer
})

/** The value of a series; undefined when there is no such line. */
export const valueOf = (text: string, series: string): number | undefined => {
  const line = text.split("\n").find((entry) => entry.startsWith(`${series} `))
  return line === undefined ? undefined : Number(line.slice(series.length + 1))
}

/** The value of a series of this gateway, now. */
export const figureOf = (series: string) =>
  Effect.map(call("/metrics"), ({ text }) => valueOf(text, series) ?? 0)

/** Answers of model `m` that have begun in this gateway. */
export const firstFrames = figureOf('tollgate_backend_first_frame_seconds_count{model="m:latest"}')

/** The chat that most tests send. */
export const hello = (more: Readonly<Record<string, unknown>> = {}) => ({
  model: "m",
  messages: [{ role: "user", content: "Hello" }],
  ...more
})

/** Model `m` answers somebody token by token: from then on plain requests hold a part of their bound only. */
export const modelSpeaks = Effect.gen(function* () {
  const [backend, { secret }] = [yield* Fake, yield* newKey()]
  backend.script({
    does: "stream",
    lines: [...Array.from({ length: 16 }, () => fake.chat("x")), fake.done("chat", { eval_count: 16 })],
    gapMs: 5
  })
  yield* call("/api/chat", { secret, body: hello() })
})

/** The request's audit row, if it is there. */
export const auditRow = Effect.fnUntraced(function* (requestId: string | null) {
  const rows = yield* sql<{
    readonly status: number
    readonly tokens_in: bigint
    readonly tokens_out: bigint
    readonly model: string | null
    readonly usage_source: string | null
    readonly error_type: string | null
    readonly key_prefix: string | null
    readonly alias: string | null
    readonly end_user: string | null
    readonly queued_ms: number | null
    readonly load_ms: number | null
    readonly truncated: boolean | null
  }>`SELECT status, tokens_in, tokens_out, model, usage_source, error_type, key_prefix, alias, end_user, queued_ms,
       load_ms, truncated FROM audit_log
     WHERE request_id = ${requestId}::text::uuid`
  return rows[0]
})

/** The audit row of an answered request, once it is there. */
export const rowOf = ({ headers }: { readonly headers: Headers }) =>
  eventually(auditRow(headers.get("x-request-id")), (row) => row !== undefined)
