/** Whether the gateway is ready, as all its workers agree: each asks the primary, which asks all of them. */
import { Effect, Layer } from "effect"
import { ReadinessAgreement } from "../../http/health.ts"
import { toPrimary, toWorker } from "../protocol.ts"
import { WorkerLink } from "./WorkerLink.ts"

const nothingKnown = {
  stopping: false,
  database: false,
  cache: false,
  backend: false,
  modelsExpired: false,
  workersFailing: true
}

/** Without an answer of the primary the gateway is not ready. */
export const layerAgreement: Layer.Layer<never, never, WorkerLink> = Layer.effect(
  ReadinessAgreement,
  Effect.map(WorkerLink, ({ channel }) => (own) => {
    channel.answer(toWorker.readiness, () => own)
    return Effect.catch(channel.ask(toPrimary.readiness, undefined), ({ reason }) =>
      Effect.as(Effect.logDebug("the primary does not answer", { reason }), nothingKnown)
    )
  })
)
