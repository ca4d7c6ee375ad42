/** Tollgate with the memory twin of every store, in front of the real backend: what the gateway costs without its I/O. */
import { BlockList } from "node:net"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Layer, References } from "effect"
import { layerMemoryOf as layerAudit } from "../../src/audit/memory.ts"
import * as Metrics from "../../src/observability/Metrics.ts"
import { PromptLog } from "../../src/promptlog/PromptLog.ts"
import { layerCircuitBreaker } from "../../src/backend/breaker.ts"
import { layerOllama } from "../../src/backend/ollama/client.ts"
import { prefixOf } from "../../src/domain/Key.ts"
import { layerFromMeter as layerBudget } from "../../src/gates/limits/budgetFromMeter.ts"
import { layerPolling as layerDiscovery } from "../../src/gates/models/polling.ts"
import { makeMemory as makeKeys } from "../../src/gates/keys/memory.ts"
import { layerFromMeter as layerLimiter } from "../../src/gates/limits/limiterFromMeter.ts"
import { layerNone as layerNoQueue } from "../../src/gates/queue/fromStore.ts"
import { layerMemory as layerMeter } from "../../src/gates/meter/memory/layer.ts"
import { layerMemory as layerContextSecret } from "../../src/secrets/memory.ts"
import * as Server from "../../src/http/server/Server.ts"
import { Drain } from "../../src/infra/Drain.ts"
import { ModelRates } from "../../src/gates/limits/TokenRates.ts"
import { SettlementQueue } from "../../src/gates/limits/SettlementQueue.ts"
import { LeaseKeeper } from "../../src/request/LeaseKeeper.ts"

const caller = (secret: string, rpm: number) => ({
  secret,
  caller: {
    tenantId: "00000000-0000-4000-8000-000000000001",
    tenantName: "bench",
    keyId: `00000000-0000-4000-8000-0000000000${rpm === 1 ? "02" : "03"}`,
    keyPrefix: prefixOf(secret),
    scopes: new Set(["chat", "embeddings"] as const),
    limits: { rpm, tpm: 2_000_000_000, concurrent: 100_000 },
    budgets: { day: 9e15, month: 9e15, total: 9e15 },
    models: "all" as const,
    weight: 1,
    priority: "interactive" as const
  }
})

const keys = makeKeys([
  caller(process.env["GOOD"] ?? "", 2_000_000_000),
  caller(process.env["POOR"] ?? "", 1)
])

const gates = Layer.mergeAll(
  keys.layer,
  layerDiscovery({ refreshS: 60, ttlS: 300 }),
  layerLimiter.pipe(
    Layer.provideMerge(Layer.mergeAll(layerBudget, ModelRates.layer, SettlementQueue.layer({ drainMs: 500 })))
  ),
  layerNoQueue,
  Layer.succeed(PromptLog, { transcript: () => undefined }),
  LeaseKeeper.layer({ leaseS: 30 })
).pipe(
  // What a store would have written to disk, or let go, is not this process's work to keep.
  Layer.provideMerge(layerMeter({ leaseS: 30, rememberS: 5 })),
  Layer.provideMerge(layerAudit(1000)),
  Layer.provideMerge(
    layerOllama({
      url: new URL(process.env["BACKEND_URL"] ?? ""),
      connectTimeoutMs: 5000,
      firstByteTimeoutMs: 120_000,
      idleTimeoutMs: 60_000,
      connections: 512
    })
  ),
  Layer.provideMerge(layerContextSecret),
  Layer.provideMerge(layerCircuitBreaker({ failures: 5, openMs: 30_000 })),
  Layer.provideMerge(Metrics.layer),
  Layer.provideMerge(Drain.layer)
)

Server.layer({
  host: "127.0.0.1",
  port: Number(process.env["PORT"]),
  shutdownDrainMs: 0,
  shutdownGraceMs: 1000,
  clientStallTimeoutMs: 60_000,
  maxConnectionsPerAddress: 4096,
  anonymousRowsPerMinute: 1_000_000,
  requestBodiesMaxBytes: 67_108_864,
  unreadAnswersMaxBytes: 134_217_728,
  trustedProxies: new BlockList(),
  maxRequestBodyBytes: 262_144,
  playground: false,
  numPredictCap: 4096,
  numCtxCap: undefined
}).pipe(
  Layer.provide(gates),
  Layer.provide(Layer.succeed(References.TracerEnabled, false)),
  Layer.provide(Layer.succeed(References.MinimumLogLevel, "Error")),
  Layer.launch,
  NodeRuntime.runMain
)
