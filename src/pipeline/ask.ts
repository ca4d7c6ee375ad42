/**
 * From a `Permit` to an answer in one object: embeddings, and what there is to know of a model. Charged and audited
 * before the client sees it, like everything else.
 */
import { Effect, type Scope } from "effect"
import type { Audit } from "../audit/Audit.ts"
import type { Metrics } from "../audit/Metrics.ts"
import { PromptLog } from "../audit/PromptLog.ts"
import { Backend } from "../backend/Backend.ts"
import type { Embeddings } from "../domain/Embeddings.ts"
import type { BackendFailed, BadRequest, Forbidden, Unavailable } from "../domain/Errors.ts"
import type { InferenceRequest, JsonObject } from "../domain/Inference.ts"
import type { Permit } from "../domain/Permit.ts"
import type { Counted } from "../domain/Usage.ts"
import type { Discovery } from "../gates/Discovery/Discovery.ts"
import type { Meter } from "../gates/Meter/Meter.ts"
import type { Aftercare } from "./Aftercare.ts"
import { calling } from "./calling.ts"
import { conclude } from "./conclude.ts"
import type { Exchange } from "./Exchange.ts"

export type Asked<A> = Effect.Effect<
  A,
  BackendFailed | BadRequest | Forbidden | Unavailable,
  Backend | Discovery | Meter | Audit | Metrics | PromptLog | Aftercare | Scope.Scope
>

/** One question, whose answer arrives whole. */
export type Ask<A> = (
  exchange: Exchange,
  permit: Permit,
  request: InferenceRequest,
  leaseS: number
) => Asked<A>

export const embed: Ask<Embeddings> = Effect.fnUntraced(function* (exchange, permit, request, leaseS) {
  const [backend, promptLog] = [yield* Backend, yield* PromptLog]
  // Vectors say nothing to people: what was asked is kept, and no answer.
  exchange.transcript = promptLog.transcript(permit.caller, exchange.arrival, request)
  const call = backend.embed(permit, { request, maxTokens: 0 })
  const { answer } = yield* calling(exchange, request, 0, leaseS, call)
  exchange.final = costOf(request, answer)
  yield* conclude(exchange, { status: 200 })
  const { source, tokensIn } = exchange.usage
  // The client sees the count it is charged, where the backend's own could not be believed.
  return source === "counted" ? { ...answer, promptEvalCount: tokensIn } : answer
})

/** Embeddings write nothing, and no vector means that nothing was read. The legacy endpoint never counts: the estimate stands. */
const costOf = (request: InferenceRequest, answer: Embeddings): Counted | undefined => {
  if (answer.vectors.every((vector) => vector.length === 0)) return { doneReason: "load" }
  if (request.kind === "embeddings") return undefined
  return {
    evalCount: 0,
    ...(answer.promptEvalCount === undefined ? {} : { promptEvalCount: answer.promptEvalCount })
  }
}

export const show: Ask<JsonObject> = Effect.fnUntraced(function* (exchange, permit, request, leaseS) {
  const backend = yield* Backend
  const { answer } = yield* calling(exchange, request, 0, leaseS, backend.show(permit))
  yield* conclude(exchange, { status: 200 })
  return answer
})
