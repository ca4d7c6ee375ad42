/** The end of a worker, when the primary asks for it. */
import { Deferred, Effect, Layer } from "effect"
import { Drain } from "../../infra/Drain.ts"
import { toWorker } from "../protocol.ts"
import { WorkerLink } from "./WorkerLink.ts"

/** Tells the server before it stops whether another worker listens in its place. */
export const layerReplacement: Layer.Layer<never, never, WorkerLink | Drain> = Layer.effectDiscard(
  Effect.gen(function* () {
    const [{ channel, stopAsked }, drain] = [yield* WorkerLink, yield* Drain]
    channel.answer(toWorker.stop, ({ replaced }) =>
      Effect.andThen(replaced ? drain.replace : Effect.void, Deferred.succeed(stopAsked, undefined)).pipe(
        Effect.asVoid
      )
    )
  })
)
