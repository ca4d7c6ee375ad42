/** One request's way, past every gate and to its end; told to those who speak HTTP. */
import { Context, Effect, Layer } from "effect"
import { makeAdmit } from "./admit.ts"
import { makeEmbed, makeShow } from "./unary.ts"
import { makeCalling } from "./calling.ts"
import { makeFinish } from "./finish.ts"
import { makeForward } from "./forward.ts"
import { makeHeadroom } from "./remaining.ts"
import { ports } from "./Ports.ts"

const make = Effect.map(ports, (ports) => {
  const calling = makeCalling(ports)
  const { finish, release } = makeFinish(ports)
  return {
    /** From an identified caller and a decoded request to a `Permit`, past every gate. */
    admit: makeAdmit(ports),
    /** From a `Permit` to the metered answer of chat and generate; succeeds when its first frame is in. */
    forward: makeForward(ports, calling),
    /** From a `Permit` to embeddings, with the count they are charged. */
    embed: makeEmbed(ports, calling),
    /** From a `Permit` to a model's description. */
    show: makeShow(ports, calling),
    /** The end of an request: charged, audited and counted, once. For an answer, between its encoding and its last byte. */
    finish,
    /** Frees the slot of an request that kept it for its answer to be written. */
    release,
    /** What is left for a caller, without consuming anything. */
    headroom: makeHeadroom(ports)
  }
})

export class Pipeline extends Context.Service<Pipeline, Effect.Success<typeof make>>()(
  "tollgate/request/Pipeline"
) {
  static readonly layer = Layer.effect(Pipeline, make)
}
