/** Tollgate with the memory twin of every store, in front of the real backend: what the gateway costs without its I/O. */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Layer, References } from "effect"
import { layerMemoryOf as layerAudit } from "../../test/support/twins/Audit.ts"
import { layerOllama } from "../../src/backend/ollama/client.ts"
import { prefixOf } from "../../src/domain/Key.ts"
import { memoryKey } from "../../test/support/twins/KeyStore.ts"
import { layerMemory as layerMeter } from "../../src/gates/meter/memory/layer.ts"
import { layerPolling as layerDiscovery } from "../../src/gates/models/polling.ts"
import { layerInMemory } from "../../test/support/inMemory.ts"

const secret = process.env["GOOD"] ?? ""
const key = memoryKey({
  keyPrefix: prefixOf(secret),
  limits: { rpm: 2_000_000_000, tpm: 2_000_000_000, concurrent: 100_000 },
  budgets: { day: 9e15, month: 9e15, total: 9e15 }
})

layerInMemory({
  keys: [{ ...key, secret }],
  discovery: layerDiscovery({ refreshS: 60, ttlS: 300 }),
  // What a store would have written to disk, or let go, is not this process's work to keep.
  meter: layerMeter({ leaseS: 30, rememberS: 5 }),
  audit: layerAudit(1000),
  backend: layerOllama({
    url: new URL(process.env["BACKEND_URL"] ?? ""),
    connectTimeoutMs: 5000,
    firstByteTimeoutMs: 120_000,
    idleTimeoutMs: 60_000,
    connections: 512
  }),
  drainMs: 500,
  server: { port: Number(process.env["PORT"]) }
}).pipe(
  Layer.provide(Layer.succeed(References.TracerEnabled, false)),
  Layer.provide(Layer.succeed(References.MinimumLogLevel, "Error")),
  Layer.launch,
  NodeRuntime.runMain
)
