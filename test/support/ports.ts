/** Everything a request passes, in memory: for tests of one step of the pipeline. */
import { Effect, Layer } from "effect"
import { layerMemory as layerBackend, replyWith } from "./twins/Backend.ts"
import { layerGatesInMemory } from "./inMemory.ts"
import { modelNamed } from "./permits.ts"

export const leaseS = 30

/** Fresh for everyone who provides it; the one model is `m:latest`, and it says `x`. */
export const layerPorts = Layer.fresh(
  layerGatesInMemory({
    leaseS,
    backend: layerBackend({
      models: Effect.succeed([modelNamed("m:latest")]),
      reply: ({ numPredict }) => Effect.succeed(replyWith(["x"], numPredict))
    })
  })
)
