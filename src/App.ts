/**
 * Joins the live layers of the gateway. No other file of the service does.
 */
import { randomUUID } from "node:crypto"
import { hostname } from "node:os"
import type * as PgClient from "@effect/sql-pg/PgClient"
import { Effect, Layer, type Redacted } from "effect"
import type { HttpServer, HttpServerError } from "effect/http"
import { layerBudgetGauges } from "./ledger/budgetGauges.ts"
import { layerCounterReconciler } from "./ledger/CounterReconciler.ts"
import { layerAuditMonths } from "./audit/months.ts"
import { layerPostgres as layerAudit } from "./audit/postgres.ts"
import { layerBudgetWarnings } from "./admin/budgetWarnings.ts"
import { layerFromSettings as layerRegistry } from "./admin/Registry.ts"
import { layerPostgres as layerLedger } from "./ledger/postgres.ts"
import { makeCalendar, TimeZone } from "./domain/Calendar.ts"
import * as Metrics from "./observability/Metrics.ts"
import { layerPostgres as layerPromptLog, layerRetention } from "./promptlog/PromptLog.ts"
import { layerCrashRecovery } from "./ledger/CrashRecovery.ts"
import { layerHeartbeat } from "./replicas/heartbeat.ts"
import { layerPostgres as layerReplicas } from "./replicas/Replicas.ts"
import { layerBackendGauges } from "./backend/gauges.ts"
import { MemoryLedger } from "./memory/MemoryLedger.ts"
import { planOf } from "./memory/plan.ts"
import type { Backend } from "./backend/Backend.ts"
import { type CircuitBreaker, layerCircuitBreaker } from "./backend/CircuitBreaker.ts"
import { layerOllama } from "./backend/ollama/client.ts"
import { Budget } from "./gates/limits/Budget.ts"
import { layerPolling as layerDiscovery } from "./gates/models/polling.ts"
import { layerPostgres as layerKeyStore } from "./gates/keys/postgres.ts"
import type { SecretVerifierOptions } from "./gates/keys/SecretVerifier.ts"
import { Limiter } from "./gates/limits/Limiter.ts"
import type { Meter } from "./gates/meter/Meter.ts"
import { layerMemory as layerMemoryMeter } from "./gates/meter/memory/layer.ts"
import { layerRedis as layerRedisMeter } from "./gates/meter/redis/RedisMeter.ts"
import { layerFromStore as layerQueueFromStore, layerNone as layerNoQueue } from "./gates/queue/fromStore.ts"
import type { QueueStore } from "./gates/queue/QueueStore.ts"
import { layerQueueGauge } from "./gates/queue/gauge.ts"
import { layerMemory as layerMemoryQueueStore } from "./gates/queue/memory.ts"
import { layerRedis as layerRedisQueueStore } from "./gates/queue/redis/RedisQueueStore.ts"
import * as Server from "./http/Server.ts"
import { Drain } from "./infra/Drain.ts"
import { layerRedis as layerRedisAt } from "./infra/Redis.ts"
import { StoreTimeouts } from "./infra/StoreTimeouts.ts"
import { ModelHabits } from "./gates/limits/ModelHabits.ts"
import { SettlementQueue } from "./gates/limits/SettlementQueue.ts"
import { layerAnswers } from "./request/answerQuestions.ts"
import { LeaseKeeper } from "./request/LeaseKeeper.ts"
import { ContextSecret } from "./secrets/ContextSecret.ts"
import type { SettingsValues } from "./Settings.ts"

/** What a gateway does not have in its process, beside the database. The simulation puts twins in their place. */
export interface Outside<E, R> {
  readonly meter: Layer.Layer<Meter, E, R>
  readonly queueStore: Layer.Layer<QueueStore, E, R>
  readonly backend: Layer.Layer<Backend, E, R | CircuitBreaker | Drain>
  /** how secrets are compared with their hashes; default: by argon2 */
  readonly secretCheck?: SecretVerifierOptions
  /** seconds between two comparisons of counters with the ledger; default 10 */
  readonly compareEveryS?: number
}

const layerRedis = (url: Redacted.Redacted) =>
  Layer.unwrap(Effect.map(StoreTimeouts, ({ command }) => layerRedisAt({ url, commandTimeoutMs: command })))

const layerTimeZone = ({ timezone }: SettingsValues) => Layer.succeed(TimeZone, makeCalendar(timezone))

/** Counters in Redis. Without Redis they are in this process, and only one process may run. */
const layerMeter = (settings: SettingsValues) => {
  const options = {
    leaseS: settings.concurrencyLeaseS,
    queueMaxWaitMs: settings.backendMaxConcurrent === undefined ? 0 : settings.queueMaxWaitMs
  }
  return settings.redisUrl === undefined
    ? layerMemoryMeter(options)
    : layerRedisMeter(options).pipe(Layer.provide(layerRedis(settings.redisUrl)))
}

/** The state of the queue. With Redis it covers all replicas, and it has a connection of its own. */
const layerQueueStore = (settings: SettingsValues) => {
  const leaseS = settings.concurrencyLeaseS
  return settings.redisUrl === undefined
    ? layerMemoryQueueStore({ leaseS })
    : layerRedisQueueStore({ leaseS }).pipe(Layer.provide(layerRedis(settings.redisUrl)))
}

/** The queue for the backend. */
const layerQueue = <E, R>(settings: SettingsValues, store: Layer.Layer<QueueStore, E, R>) =>
  settings.backendMaxConcurrent === undefined
    ? layerNoQueue
    : layerQueueFromStore({
        places: settings.backendMaxConcurrent,
        depth: settings.queueMaxDepth,
        maxWaitMs: settings.queueMaxWaitMs,
        maxLoadedModels: settings.backendMaxLoadedModels,
        turnMaxMs: settings.modelTurnMaxMs
      }).pipe(Layer.provide(store))

const outside = (settings: SettingsValues, backendUrl: URL) => ({
  meter: layerMeter(settings),
  queueStore: layerQueueStore(settings),
  backend: layerOllama({
    url: backendUrl,
    connectTimeoutMs: settings.backendConnectTimeoutMs,
    firstByteTimeoutMs: settings.backendFirstByteTimeoutMs,
    idleTimeoutMs: settings.backendIdleTimeoutMs,
    maxDurationMs: settings.requestMaxDurationMs
  })
})

const layerRecords = (settings: SettingsValues) =>
  Layer.unwrap(
    Effect.map(StoreTimeouts, ({ open, refuse }) =>
      layerAudit({
        leaseS: settings.concurrencyLeaseS,
        anonymousCapacity: 5000,
        openTimeoutMs: open,
        refuseTimeoutMs: refuse
      })
    )
  )

const layerKeys = (settings: SettingsValues, secretCheck: SecretVerifierOptions | undefined) =>
  Layer.unwrap(
    Effect.zipWith(Metrics.Metrics, StoreTimeouts, ({ revoked }, { keyRead }) =>
      layerKeyStore({
        namespace: settings.keyNamespace,
        freshnessMs: settings.keyFreshnessMs,
        promptLogDefaultDays: settings.promptLogDefaultRetentionDays,
        readTimeoutMs: keyRead,
        onRevoked: revoked,
        ...(secretCheck === undefined ? {} : { secretCheck })
      })
    )
  )

/** Limits and budgets are claimed together, after the pending settlements of earlier requests. */
const layerLimits = Limiter.layer.pipe(
  Layer.provideMerge(
    Layer.mergeAll(Budget.layer, ModelHabits.layer, SettlementQueue.layer({ drainMs: 2000 }))
  )
)

/** The gates of a request, what it holds and its books. It needs the client of the database. */
export const layerRequests = <E, R>(
  settings: SettingsValues,
  { backend, compareEveryS = 10, meter, queueStore, secretCheck }: Outside<E, R>
) =>
  Layer.mergeAll(
    layerKeys(settings, secretCheck),
    layerDiscovery({
      refreshS: settings.discoveryRefreshS,
      ttlS: settings.discoveryTtlS,
      window: {
        ...(settings.numCtxCap === undefined ? {} : { numCtxCap: settings.numCtxCap }),
        defaultTokens: settings.backendContextLength,
        refuses: settings.promptOverflow === "refuse"
      }
    }),
    layerLimits,
    layerCrashRecovery({ leaseS: settings.concurrencyLeaseS }),
    LeaseKeeper.layer({ leaseS: settings.concurrencyLeaseS })
  ).pipe(
    Layer.provideMerge(layerLedger),
    Layer.provideMerge(layerRecords(settings)),
    Layer.provideMerge(layerCounterReconciler({ everyS: compareEveryS })),
    Layer.provideMerge(meter),
    Layer.provideMerge(backend),
    Layer.provideMerge(
      layerCircuitBreaker({ failures: settings.breakerFailures, openMs: settings.breakerOpenMs })
    ),
    Layer.provideMerge(layerQueue(settings, queueStore)),
    Layer.provideMerge(MemoryLedger.layer({ maxBytes: planOf(settings.memoryMaxBytes).ledger })),
    Layer.provideMerge(Drain.layer),
    Layer.provideMerge(layerTimeZone(settings))
  )

/** This process among the others, for commands. */
const layerReplica = () => {
  const id = randomUUID()
  return Layer.merge(layerHeartbeat({ host: hostname(), id }), layerAnswers({ replica: id })).pipe(
    Layer.provide(layerReplicas)
  )
}

/** All of a gateway but its server. It knows nothing of HTTP. */
export const layerGates = (settings: SettingsValues, backendUrl: URL) =>
  Layer.mergeAll(
    ContextSecret.layer,
    layerBudgetGauges,
    layerBudgetWarnings({ url: settings.alertWebhookUrl, secret: settings.alertWebhookSecret }),
    layerBackendGauges,
    layerQueueGauge,
    layerPromptLog({ defaultDays: settings.promptLogDefaultRetentionDays }),
    layerRetention,
    layerReplica(),
    layerAuditMonths({ retentionDays: settings.auditRetentionDays })
  ).pipe(
    Layer.provideMerge(layerRequests(settings, outside(settings, backendUrl))),
    Layer.provideMerge(Metrics.layer),
    Layer.provideMerge(layerTimeZone(settings))
  )

/** Administration, for the first start of embedded mode. */
export const layerAdmin = layerRegistry

/** Off by default. On in embedded mode, where the person who starts the gateway also tries it. */
export const playgroundOf = (settings: SettingsValues): boolean =>
  settings.playgroundEnabled ?? settings.databaseUrl === undefined

/** A single embedded process has no balancer that must notice the stop. */
export const drainMsOf = (settings: SettingsValues): number =>
  settings.shutdownDrainMs ?? (settings.databaseUrl === undefined ? 0 : 3000)

export const boundsOf = (settings: SettingsValues): Server.ServerOptions["bounds"] => {
  const { connections } = planOf(settings.memoryMaxBytes)
  return {
    connections,
    // One address never has all.
    connectionsPerAddress: Math.min(settings.maxConnectionsPerAddress, connections / 2),
    newConnections: { perSecond: 300, burst: 1000 },
    anonymousRefusals: { perSecond: 200, burst: 100 },
    anonymousRowsPerMinute: settings.anonymousRowsPerMinute
  }
}

export const serverOptionsOf = (settings: SettingsValues): Server.ServerOptions => ({
  host: settings.host,
  port: settings.port,
  shutdownDrainMs: drainMsOf(settings),
  shutdownGraceMs: settings.shutdownGraceMs,
  clientStallTimeoutMs: settings.clientStallTimeoutMs,
  bounds: boundsOf(settings),
  trustedProxies: settings.trustedProxies,
  playground: playgroundOf(settings),
  extraSurfaces: settings.extraSurfaces,
  maxRequestBodyBytes: settings.maxRequestBodyBytes,
  numPredictCap: settings.numPredictCap,
  toolsMax: settings.toolsMax,
  errorBodies: settings.errorBodies,
  lowersOutput: settings.outputAboveCap === "lower",
  numCtxCap: settings.numCtxCap,
  refusesOverflow: settings.promptOverflow === "refuse"
})

/** The whole service, on a given database client. It provides its `HttpServer`, which has the address it listens on. */
export const layerApp = (
  settings: SettingsValues,
  backendUrl: URL
): Layer.Layer<HttpServer.HttpServer, HttpServerError.ServeError, PgClient.PgClient> =>
  Server.layer(serverOptionsOf(settings)).pipe(Layer.provide(layerGates(settings, backendUrl)))
