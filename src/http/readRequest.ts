/** Reads and decodes a request. Only its body, and the secret of its context, are waited for. */
import { Effect } from "effect"
import type { Asked, Evidence } from "../domain/Evidence.ts"
import { refusingOverflow } from "../domain/promptWindow.ts"
import { ContextSecret } from "../secrets/ContextSecret.ts"
import { bodyOf, makeReceive } from "./body.ts"
import type { Bounds, Decode } from "./dialect/Dialect.ts"
import { withContext } from "./dialect/native/contexts.ts"
import { withPromptSize } from "./dialect/promptEstimate.ts"
import type { Exchange } from "./Exchange.ts"
import { FreeWork } from "./FreeWork.ts"
import type { Share } from "./server/RequestBodies.ts"

export interface RequestOptions extends Bounds {
  readonly maxRequestBodyBytes: number
  /** `PROMPT_OVERFLOW=refuse` */
  readonly refusesOverflow: boolean
}

export const makeReadRequest = Effect.fnUntraced(function* (options: RequestOptions) {
  const [contexts, freeWork, receive] = [yield* ContextSecret, yield* FreeWork, yield* makeReceive]

  return Effect.fnUntraced(function* (
    exchange: Exchange,
    key: Evidence<"KeyStore">,
    share: Share,
    decode: Decode
  ) {
    const { context, incoming } = exchange
    const { caller } = key.facts
    const bytes = yield* receive(exchange, share, options.maxRequestBodyBytes)
    context.readBody(bytes.byteLength)
    // Other requests at the same time may have used up its free work.
    yield* Effect.fromResult(freeWork.check(caller))
    const body = yield* Effect.fromResult(bodyOf(incoming, bytes))
    const decoded = yield* Effect.fromResult(decode(body, options))
    const sized = withPromptSize(yield* withContext(contexts, caller.keyId, decoded))
    const request = options.refusesOverflow ? refusingOverflow(sized) : sized
    context.claimEndUser(request.endUser)
    return {
      arrival: context.arrival,
      ...(context.endUser === undefined ? {} : { endUser: context.endUser }),
      request,
      maxTokens: request.maxTokens ?? options.numPredictCap
    } satisfies Asked
  })
})
