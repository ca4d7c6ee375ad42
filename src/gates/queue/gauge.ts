/** Gauges of the places at the backend that are taken, to compare with `BACKEND_MAX_CONCURRENT`, and of its models. */
import { Effect, Layer } from "effect"
import { Metrics } from "../../observability/Metrics.ts"
import { FairQueue } from "./FairQueue.ts"
import type { ModelUse } from "./QueueStore.ts"

export const layerQueueGauge: Layer.Layer<never, never, FairQueue | Metrics> = Layer.effectDiscard(
  Effect.gen(function* () {
    const queue = yield* FairQueue
    const metrics = yield* Metrics
    yield* metrics.probe({
      name: "tollgate_queue_places_in_use",
      help: "Requests of this replica that have a place at the backend; 0 when BACKEND_MAX_CONCURRENT is not set",
      read: Effect.sync(() => queue.status().running)
    })
    const ofModels = (figure: (model: ModelUse) => number) => ({
      labels: ["model"],
      read: Effect.sync(() =>
        queue.status().models.map((model) => ({ labels: { model: model.name }, value: figure(model) }))
      )
    })
    yield* metrics.probe({
      name: "tollgate_queue_model_loaded",
      help: "Models that the backend has loaded, as far as the queue knows, and those that requests wait for: 1 or 0",
      ...ofModels(({ resident }) => (resident ? 1 : 0))
    })
    yield* metrics.probe({
      name: "tollgate_queue_model_waiting",
      help: "Requests of all replicas that wait for a place at the backend, by model",
      ...ofModels(({ waiting }) => waiting)
    })
  })
)
