/** Reads and decodes a request. Only its body, and the secret of its context, are waited for. */
import { Effect, Result } from "effect"
import type { GatewayError } from "../domain/Errors.ts"
import type { Asked, Evidence } from "../domain/Evidence.ts"
import type { DecodedRequest } from "../domain/Inference.ts"
import { refusingOverflow } from "../domain/promptWindow.ts"
import { freeLarge } from "../infra/freeBuffer.ts"
import type { Caller } from "../domain/Caller.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { ContextSecret } from "../secrets/ContextSecret.ts"
import { bodyOf, codingOf, makeReceive } from "./body.ts"
import type { Bounds, Decode } from "./dialect/Dialect.ts"
import { withContext } from "./dialect/native/sealedContext.ts"
import { withPromptSize } from "./dialect/promptEstimate.ts"
import { makeDecodeTurns } from "./turns.ts"
import type { Exchange } from "./Exchange.ts"
import { FreeWork } from "./FreeWork.ts"
import { Backend } from "../backend/Backend.ts"
import { makeUnpack } from "./unpack.ts"
import type { RequestShare } from "../memory/MemoryLedger.ts"

export interface RequestOptions extends Bounds {
  readonly maxRequestBodyBytes: number
  /** `PROMPT_OVERFLOW=refuse` */
  readonly refusesOverflow: boolean
}

/** A smaller body takes less than two milliseconds, whatever it is made of. */
const largeBytes = 32_768

export const makeReadRequest = Effect.fnUntraced(function* (options: RequestOptions) {
  const { guards } = yield* Backend
  const contexts = yield* ContextSecret
  const freeWork = yield* FreeWork
  const receive = yield* makeReceive
  const inTurn = yield* makeDecodeTurns
  const unpack = yield* makeUnpack

  const askedOf = (context: RequestContext, caller: Caller, decoded: DecodedRequest): Asked => {
    const sized = withPromptSize(decoded)
    const request = options.refusesOverflow ? refusingOverflow(sized) : sized
    // Where a name decides anything, only the header counts: its sender is trusted, the body may be the user's own.
    if (caller.users === undefined) context.claimEndUser(request.endUser)
    context.said = { ...context.said, asked: { model: request.model, stream: request.stream } }
    const { arrival } = context
    const { endUser } = context.said
    const outputBound = request.maxTokens ?? options.numPredictCap
    return { arrival, request, outputBound, ...(endUser === undefined ? {} : { endUser }) }
  }

  return Effect.fnUntraced(function* (
    exchange: Exchange,
    { facts: { caller } }: Evidence<"KeyStore">,
    share: RequestShare,
    decode: Decode
  ): Effect.fn.Return<Asked, GatewayError> {
    const { context, incoming } = exchange
    const limitBytes = options.maxRequestBodyBytes
    const received = yield* receive(exchange, share, limitBytes)
    context.said = { ...context.said, bodyBytes: received.byteLength }
    // Other requests at the same time may have used up its free work.
    yield* Effect.fromResult(freeWork.check(caller))
    const coding = yield* Effect.fromResult(codingOf(incoming))
    const bytes =
      coding === undefined
        ? received
        : yield* unpack(caller.tenantId, coding, received, limitBytes, share).pipe(
            // What was unpacked in vain is work too.
            Effect.tapErrorTag("PayloadTooLarge", () =>
              Effect.sync(() => void (context.said = { ...context.said, bodyBytes: limitBytes }))
            )
          )
    if (bytes !== received) context.said = { ...context.said, bodyBytes: bytes.byteLength }
    const decoding = () => {
      const parsed = bodyOf(incoming, bytes, share)
      freeLarge(bytes)
      return Result.flatMap(parsed, (body) => decode(body, options, guards))
    }
    const decoded = yield* bytes.byteLength < largeBytes
      ? Effect.fromResult(decoding())
      : inTurn(caller.tenantId, decoding)
    return askedOf(context, caller, yield* withContext(contexts, caller.keyId, decoded))
  })
})
