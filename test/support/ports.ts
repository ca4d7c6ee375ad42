/** Everything a request passes, in memory: for tests of one step of the pipeline. */
import { Effect, Layer } from "effect"
import { layerMemory as layerAudit } from "../../src/audit/memory.ts"
import * as Metrics from "../../src/observability/Metrics.ts"
import { PromptLog } from "../../src/promptlog/PromptLog.ts"
import { layerCircuitBreaker } from "../../src/backend/breaker.ts"
import { layerMemory as layerBackend, say } from "../../src/backend/memory.ts"
import { layerFromMeter as layerBudget } from "../../src/gates/limits/budgetFromMeter.ts"
import { layerMemory as layerDiscovery } from "../../src/gates/models/memory.ts"
import { layerFromMeter as layerLimiter } from "../../src/gates/limits/limiterFromMeter.ts"
import { layerNone as layerNoQueue } from "../../src/gates/queue/fromStore.ts"
import { layerMemory as layerMeter } from "../../src/gates/meter/memory/layer.ts"
import { Drain } from "../../src/infra/Drain.ts"
import { ModelRates } from "../../src/gates/limits/TokenRates.ts"
import { SettlementQueue } from "../../src/gates/limits/SettlementQueue.ts"
import { LeaseKeeper } from "../../src/request/LeaseKeeper.ts"
import { modelNamed } from "./permits.ts"

export const leaseS = 30

/** Fresh for everyone who provides it; the one model is `m:latest`, and it says `x`. */
export const layerPorts = Layer.fresh(
  Layer.mergeAll(
    layerDiscovery([modelNamed("m:latest")]),
    layerLimiter.pipe(
      Layer.provideMerge(Layer.mergeAll(layerBudget, ModelRates.layer, SettlementQueue.layer({ drainMs: 0 })))
    ),
    layerNoQueue,
    Layer.succeed(PromptLog, { transcript: () => undefined }),
    LeaseKeeper.layer({ leaseS })
  ).pipe(
    Layer.provideMerge(layerMeter({ leaseS })),
    Layer.provideMerge(layerAudit),
    Layer.provideMerge(
      layerBackend({
        models: Effect.succeed([modelNamed("m:latest")]),
        reply: ({ maxTokens }) => Effect.succeed(say(["x"], maxTokens))
      })
    ),
    Layer.provideMerge([layerCircuitBreaker({ failures: 5, openMs: 30_000 }), Drain.layer]),
    Layer.provideMerge(Metrics.layer)
  )
)
