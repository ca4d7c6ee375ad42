/**
 * The whole gateway on memory twins: no Postgres, no Redis, no model server. For tests and benchmarks.
 *
 * @example
 * ```ts
 * const key = memoryKey()
 * const gateway = layerInMemory({ keys: [key] })
 * // `HttpServer.HttpServer` has the address, and the gateway takes `key.secret`
 * ```
 *
 * *Details* Every part can be replaced by another layer, for example by a twin that fails on demand. Each use of
 * `layerInMemory` is a gateway of its own, unless the same layer is provided twice.
 */
import { randomBytes } from "node:crypto"
import { BlockList } from "node:net"
import { Effect, Layer } from "effect"
import { type AuditMemory, layerMemory as layerAudit } from "./twins/Audit.ts"
import type { Audit } from "../../src/audit/Audit.ts"
import { MemoryLedger } from "../../src/memory/MemoryLedger.ts"
import type { Backend } from "../../src/backend/Backend.ts"
import { type CircuitBreaker, layerCircuitBreaker } from "../../src/backend/CircuitBreaker.ts"
import { layerMemory as layerBackend, replyWith } from "./twins/Backend.ts"
import { Budget } from "../../src/gates/limits/Budget.ts"
import type { Ledger } from "../../src/gates/limits/Ledger.ts"
import { Limiter } from "../../src/gates/limits/Limiter.ts"
import { ModelHabits } from "../../src/gates/limits/ModelHabits.ts"
import { modelNamed } from "./permits.ts"
import { noReconciler } from "./noReconciler.ts"
import { SettlementQueue } from "../../src/gates/limits/SettlementQueue.ts"
import { layerMemory as layerKeys, type MemoryKey } from "./twins/KeyStore.ts"
import type { KeyStore } from "../../src/gates/keys/KeyStore.ts"
import { layerMemory as layerMeter } from "../../src/gates/meter/memory/layer.ts"
import type { Meter } from "../../src/gates/meter/Meter.ts"
import type { Discovery } from "../../src/gates/models/Discovery.ts"
import { layerMemory as layerDiscovery } from "./twins/Discovery.ts"
import type { FairQueue } from "../../src/gates/queue/FairQueue.ts"
import { layerNone as layerNoQueue } from "../../src/gates/queue/fromStore.ts"
import * as Server from "../../src/http/Server.ts"
import { Drain } from "../../src/infra/Drain.ts"
import * as Metrics from "../../src/observability/Metrics.ts"
import { PromptLog } from "../../src/promptlog/PromptLog.ts"
import { LeaseKeeper } from "../../src/request/LeaseKeeper.ts"
import { ContextSecret } from "../../src/secrets/ContextSecret.ts"

export { memoryKey } from "./twins/KeyStore.ts"

/** Parts to put in place of the default ones. */
export interface InMemoryOptions {
  /** keys that exist from the start; default: none */
  readonly keys?: ReadonlyArray<MemoryKey>
  /** in place of a store of `keys` */
  readonly keyStore?: Layer.Layer<KeyStore>
  /** default: the one model `m:latest` */
  readonly discovery?: Layer.Layer<Discovery, never, Backend | FairQueue | Metrics.Metrics>
  /** default: no queue, as without `BACKEND_MAX_CONCURRENT` */
  readonly queue?: Layer.Layer<FairQueue, never, Drain | Metrics.Metrics>
  readonly meter?: Layer.Layer<Meter>
  readonly audit?: Layer.Layer<Audit | Ledger | AuditMemory>
  /** default: a model that answers "Hello world" */
  readonly backend?: Layer.Layer<Backend, never, CircuitBreaker | Drain>
  /** seconds that a slot lives without being renewed; default 30 */
  readonly leaseS?: number
  /** how long a shutdown waits for settlements, milliseconds; default 0 */
  readonly drainMs?: number
  /** default: a free port of this machine, and the default settings */
  readonly server?: Partial<Server.ServerOptions>
  /** parts that the server gets in place of those they are made of */
  readonly over?: Layer.Layer<Over, never, Layer.Success<ReturnType<typeof layerGatesInMemory>>>
}

type Over = Audit | Backend | Budget | Discovery | KeyStore | Limiter | Meter | Metrics.Metrics

/** A random secret of this process only. */
export const layerContextSecret: Layer.Layer<ContextSecret> = Layer.sync(ContextSecret, () => {
  const secret = randomBytes(32)
  return ContextSecret.of({ read: Effect.succeed(secret) })
})

const models = [modelNamed("m:latest")]

/** Everything that a request passes, without a socket. */
export const layerGatesInMemory = (options: InMemoryOptions = {}) => {
  const leaseS = options.leaseS ?? 30
  const backend =
    options.backend ??
    layerBackend({
      models: Effect.succeed(models),
      reply: ({ numPredict }) => Effect.succeed(replyWith(["Hello", " world"], numPredict))
    })
  return Layer.mergeAll(
    options.keyStore ?? layerKeys(options.keys),
    options.discovery ?? layerDiscovery(models),
    Limiter.layer.pipe(
      Layer.provideMerge(
        Layer.mergeAll(
          Budget.layer,
          ModelHabits.layer,
          SettlementQueue.layer({ drainMs: options.drainMs ?? 0 })
        )
      )
    ),
    // No key has opted in to the prompt log.
    Layer.succeed(PromptLog, { transcript: () => undefined }),
    LeaseKeeper.layer({ leaseS }),
    layerContextSecret
  ).pipe(
    Layer.provideMerge(noReconciler),
    Layer.provideMerge(options.meter ?? layerMeter({ leaseS })),
    Layer.provideMerge(options.audit ?? layerAudit),
    Layer.provideMerge(backend),
    Layer.provideMerge(options.queue ?? layerNoQueue),
    Layer.provideMerge(MemoryLedger.layer({ maxBytes: 268_435_456 })),
    Layer.provideMerge(layerCircuitBreaker({ failures: 5, openMs: 30_000 })),
    Layer.provideMerge(Metrics.layer),
    Layer.provideMerge(Drain.layer)
  )
}

/** The gateway on a socket; provides its `HttpServer`, and the ports behind it. */
export const layerInMemory = (options: InMemoryOptions = {}) =>
  Server.layer({
    host: "127.0.0.1",
    port: 0,
    shutdownDrainMs: 0,
    shutdownGraceMs: 1000,
    clientStallTimeoutMs: 60_000,
    bounds: {
      connections: 16_384,
      connectionsPerAddress: 4096,
      newConnections: { perSecond: 300, burst: 1000 },
      anonymousRefusals: { perSecond: 200, burst: 100 },
      anonymousRowsPerMinute: 1_000_000
    },
    trustedProxies: new BlockList(),
    maxRequestBodyBytes: 262_144,
    playground: false,
    extraSurfaces: new Set(),
    numPredictCap: 65_536,
    toolsMax: 128,
    errorBodies: "specification",
    lowersOutput: false,
    numCtxCap: undefined,
    refusesOverflow: false,
    ...options.server
  }).pipe(Layer.provide(options.over ?? Layer.empty), Layer.provideMerge(layerGatesInMemory(options)))
