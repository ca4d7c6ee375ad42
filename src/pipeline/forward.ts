/**
 * From a `Permit` to the answer: calls the backend and meters what comes back. The stream is the backend's own,
 * except that it holds more tokens as it goes, is ended with `length` when nothing remains to hold, and settles
 * before it lets its last frame out.
 */
import { Array as Arr, Effect, type Scope, Stream } from "effect"
import type { Audit } from "../audit/Audit.ts"
import { Metrics } from "../audit/Metrics.ts"
import { PromptLog } from "../audit/PromptLog.ts"
import { Backend } from "../backend/Backend.ts"
import type { BackendFailed, BadRequest, Forbidden, Unavailable } from "../domain/Errors.ts"
import type { Frame } from "../domain/Frame.ts"
import type { InferenceRequest } from "../domain/Inference.ts"
import type { Permit } from "../domain/Permit.ts"
import type { Discovery } from "../gates/Discovery/Discovery.ts"
import type { Meter } from "../gates/Meter/Meter.ts"
import type { Aftercare } from "./Aftercare.ts"
import { calling } from "./calling.ts"
import { conclude } from "./conclude.ts"
import type { Exchange } from "./Exchange.ts"
import type { Hold } from "./Hold.ts"
import { suited } from "./suits.ts"

export type Answer = Stream.Stream<Frame, BackendFailed | Unavailable, Meter | Audit | Metrics | Aftercare>

export const forward = Effect.fnUntraced(function* (
  exchange: Exchange,
  permit: Permit,
  request: InferenceRequest,
  maxTokens: number,
  leaseS: number
): Effect.fn.Return<
  Answer,
  BackendFailed | BadRequest | Forbidden,
  Backend | Discovery | Meter | Audit | Metrics | PromptLog | Scope.Scope
> {
  const [backend, metrics, promptLog] = [yield* Backend, yield* Metrics, yield* PromptLog]
  exchange.transcript = promptLog.transcript(permit.caller, exchange.arrival, request)
  // What remained at admission bounds the answer too, whatever the client asked for (contract §6).
  const bound = Math.max(1, Math.min(maxTokens, permit.reservation.available - request.promptEstimate))
  const call = { request: suited(request, permit.model), maxTokens: bound }
  const { answer, hold } = yield* calling(exchange, request, bound, leaseS, backend.forward(permit, call))
  yield* metrics.firstFrame(exchange.arrival.arrivedAt)
  return answer.pipe(
    Stream.mapArrayEffect((chunk) => meter(exchange, hold, chunk)),
    Stream.takeUntil((frame) => frame.done)
  )
})

const bearsOutput = (frame: Frame): boolean =>
  frame.text !== "" || frame.thinking !== undefined || frame.toolCalls !== undefined

const meter = Effect.fnUntraced(function* (
  exchange: Exchange,
  hold: Hold,
  chunk: Arr.NonEmptyReadonlyArray<Frame>
) {
  for (const frame of chunk) if (bearsOutput(frame)) exchange.frames += 1
  const last = Arr.lastNonEmpty(chunk)
  if (last.done) {
    exchange.final = last
    exchange.transcript?.add(chunk)
    yield* conclude(exchange, { status: 200 })
    return replaceLast(chunk, asCharged(last, exchange))
  }
  yield* hold.extend
  if (!hold.spent) {
    exchange.transcript?.add(chunk)
    return chunk
  }
  const kept = withoutLast(chunk, hold.excess)
  exchange.frames -= chunk.filter(bearsOutput).length - kept.filter(bearsOutput).length
  exchange.transcript?.add(kept)
  yield* conclude(exchange, { status: 200 })
  const end: Frame = { createdAt: last.createdAt, text: "", done: true, doneReason: "length" }
  return Arr.append(kept, asCharged(end, exchange))
})

/** What a chunk carries beyond the end of the budget is neither shown nor charged. */
const withoutLast = (chunk: ReadonlyArray<Frame>, excess: number): ReadonlyArray<Frame> => {
  let over = excess
  return chunk
    .toReversed()
    .filter((frame) => !bearsOutput(frame) || over-- <= 0)
    .toReversed()
}

const replaceLast = (
  chunk: Arr.NonEmptyReadonlyArray<Frame>,
  last: Frame
): Arr.NonEmptyReadonlyArray<Frame> => Arr.append(Arr.initNonEmpty(chunk), last)

/** The client sees the counts it is charged, where the backend's own could not be believed. */
const asCharged = (final: Frame, exchange: Exchange): Frame => {
  const usage = exchange.usage
  return usage.source === "backend"
    ? final
    : { ...final, promptEvalCount: usage.tokensIn, evalCount: usage.tokensOut }
}
