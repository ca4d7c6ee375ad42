/** The metrics of a worker: whoever asks one worker gets the figures of all. */
import { Effect, Layer, Schema } from "effect"
import * as Metrics from "../../observability/Metrics.ts"
import { toPrimary, toWorker } from "../protocol.ts"
import { WorkerLink } from "./WorkerLink.ts"

/** The primary waits for each worker before it answers. */
const expositionTimeoutMs = 5000

const decodeSnapshot = Schema.decodeUnknownEffect(toWorker.snapshot.output)

export const layerWorkerMetrics: Layer.Layer<Metrics.Metrics, never, WorkerLink> = Layer.effect(
  Metrics.Metrics,
  Effect.gen(function* () {
    const [{ channel }, own] = [yield* WorkerLink, yield* Metrics.Metrics]
    const snapshot = Effect.flatMap(own.snapshot, decodeSnapshot)
    channel.answer(toWorker.snapshot, () => snapshot)
    // Nothing of this worker is counted after this: its other layers have ended.
    yield* Effect.addFinalizer(() =>
      Effect.ignore(Effect.flatMap(snapshot, (last) => channel.ask(toPrimary.lastSnapshot, last)))
    )
    return Metrics.Metrics.of({
      ...own,
      exposition: Effect.orDie(channel.ask(toPrimary.exposition, undefined, expositionTimeoutMs))
    })
  })
).pipe(Layer.provide(Metrics.layer))
