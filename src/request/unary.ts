/**
 * From a `Permit` to an answer in one object: embeddings, and what there is to know of a model. Whoever encodes the
 * answer then concludes the request, before the client sees it.
 */
import { Effect } from "effect"
import type { Embeddings } from "../domain/Embeddings.ts"
import type { CallError } from "../backend/errors.ts"
import type { InferenceRequest, JsonObject } from "../domain/Inference.ts"
import type { Permit } from "../domain/Permit.ts"
import type { Counted } from "../domain/Usage.ts"
import type { Calling } from "./calling.ts"
import type { RequestContext } from "./RequestContext.ts"
import { noOutput } from "./outputPlan.ts"
import type { Ports } from "./Ports.ts"

/** One question, whose answer arrives whole. */
export type UnaryCall<A> = (
  context: RequestContext,
  permit: Permit,
  request: InferenceRequest
) => Effect.Effect<A, CallError>

export const makeEmbed = ({ backend, promptLog }: Ports, calling: Calling): UnaryCall<Embeddings> =>
  Effect.fnUntraced(function* (context, permit, request) {
    // Vectors say nothing to people: what was asked is kept, and no answer.
    context.transcript = promptLog.transcript(permit.caller, context.arrival, request)
    const { answer } = yield* calling(
      context,
      request,
      noOutput,
      0,
      backend.embed(permit, { request, maxTokens: 0, runs: 1 })
    )
    context.final = costOf(request, answer)
    const { source, tokensIn } = context.usage
    // The client sees the count it is charged, where the backend's own could not be believed.
    return source === "counted" ? { ...answer, promptEvalCount: tokensIn } : answer
  })

/** Embeddings write nothing, and no vector means that nothing was read. The legacy endpoint never counts: the estimate stands. */
const costOf = (request: InferenceRequest, answer: Embeddings): Counted | undefined => {
  if (answer.vectors.every(({ numbers }) => numbers.length === 0)) return { doneReason: "load" }
  if (request.kind === "embeddings") return undefined
  return {
    evalCount: 0,
    ...(answer.promptEvalCount === undefined ? {} : { promptEvalCount: answer.promptEvalCount })
  }
}

export const makeShow =
  ({ backend }: Ports, calling: Calling): UnaryCall<JsonObject> =>
  (context, permit, request) =>
    Effect.map(calling(context, request, noOutput, 0, backend.show(permit)), ({ answer }) => answer)
