/** Everything a request passes, in memory: for tests of one step of the pipeline. */
import { Effect, Layer } from "effect"
import { layerMemory as layerAudit } from "../../src/audit/memory.ts"
import * as Metrics from "../../src/audit/Metrics.ts"
import { PromptLog } from "../../src/audit/PromptLog.ts"
import { layerCircuitBreaker } from "../../src/backend/breaker.ts"
import { layerMemory as layerBackend, say } from "../../src/backend/memory.ts"
import { layerLive as layerBudget } from "../../src/gates/Budget/live.ts"
import { layerMemory as layerDiscovery } from "../../src/gates/Discovery/memory.ts"
import { layerLive as layerLimiter } from "../../src/gates/Limiter/live.ts"
import { layerNone as layerNoQueue } from "../../src/gates/queue/fromStore.ts"
import { layerMemory as layerMeter } from "../../src/gates/Meter/memory.ts"
import { Drain } from "../../src/infra/Drain.ts"
import { Aftercare } from "../../src/pipeline/Aftercare.ts"
import { Leases } from "../../src/pipeline/Leases.ts"
import { modelNamed } from "./permits.ts"

export const leaseS = 30

/** Fresh for everyone who provides it; the one model is `m:latest`, and it says `x`. */
export const layerPorts = Layer.fresh(
  Layer.mergeAll(
    layerDiscovery([modelNamed("m:latest")]),
    layerLimiter,
    layerNoQueue,
    layerBudget,
    Layer.succeed(PromptLog, { transcript: () => undefined }),
    Aftercare.layer({ drainMs: 0 }),
    Leases.layer({ leaseS })
  ).pipe(
    Layer.provideMerge(layerMeter({ leaseS })),
    Layer.provideMerge(layerAudit),
    Layer.provideMerge(
      layerBackend({
        models: Effect.succeed([modelNamed("m:latest")]),
        reply: (_permit, { maxTokens }) => Effect.succeed(say(["x"], maxTokens))
      })
    ),
    Layer.provideMerge([layerCircuitBreaker({ failures: 5, openMs: 30_000 }), Drain.layer]),
    Layer.provideMerge(Metrics.layer)
  )
)
