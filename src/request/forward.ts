/**
 * From a `Permit` to the answer: bounds the request, calls the backend and meters what comes back.
 */
import { Effect, type Scope } from "effect"
import type { CallError } from "../backend/errors.ts"
import type { InferenceRequest } from "../domain/Inference.ts"
import type { Permit } from "../domain/Permit.ts"
import type { Calling } from "./calling.ts"
import type { RequestContext } from "./RequestContext.ts"
import { type Answer, meterStream } from "./meterStream.ts"
import { numPredictOf } from "./outputPlan.ts"
import type { Ports } from "./Ports.ts"
import { Speech } from "./Speech.ts"
import { dropUnsupported } from "./capabilities.ts"

export const makeForward = ({ backend, metrics, nowMs, promptLog, rates }: Ports, calling: Calling) =>
  Effect.fnUntraced(function* (
    context: RequestContext,
    permit: Permit,
    request: InferenceRequest,
    maxTokens: number
  ): Effect.fn.Return<Answer, CallError, Scope.Scope> {
    context.transcript = promptLog.transcript(permit.caller, context.arrival, request)
    const sent = dropUnsupported(request, permit.model)
    // The plan that was admitted: by now the model may be known to answer in another way.
    const { plan } = context
    if (!plan.collects) {
      context.speech = new Speech(rates, permit.caller.keyId, permit.model.name, nowMs)
    }
    // What remained at admission bounds the answer too, whatever the client asked for.
    const bound = numPredictOf(plan, permit.reservation, request.promptEstimate, maxTokens)
    const call = { request: sent, maxTokens: bound, runs: plan.runs }
    const { answer, hold } = yield* calling(context, request, plan, bound, backend.forward(permit, call))
    yield* metrics.firstFrame(nowMs() - context.arrivedMs)
    return meterStream(answer, context, hold)
  })
