/** A gauge of the places at the backend that are taken, to compare with `BACKEND_MAX_CONCURRENT`. */
import { Effect, Layer } from "effect"
import { Metrics } from "../../observability/Metrics.ts"
import { FairQueue } from "./FairQueue.ts"

export const layerQueueGauge: Layer.Layer<never, never, FairQueue | Metrics> = Layer.effectDiscard(
  Effect.gen(function* () {
    const [queue, metrics] = [yield* FairQueue, yield* Metrics]
    yield* metrics.probe({
      name: "tollgate_queue_places_in_use",
      help: "Requests of this replica that have a place at the backend; 0 when BACKEND_MAX_CONCURRENT is not set",
      read: Effect.sync(() => queue.status().running)
    })
  })
)
