/**
 * What a model can do, as far as it is known. Reasoning for a model that cannot think is refused on the native surface, and
 * left out on the OpenAI surface (docs/protocol.md, "OpenAI requests").
 */
import type { InferenceRequest } from "./Inference.ts"
import type { Model } from "./Model.ts"

/** Whether the model is known not to think. */
export const cannotThink = (model: Model): boolean =>
  model.capabilities !== undefined && !model.capabilities.includes("thinking")

/** Removes what the model cannot do from a request. */
export const dropUnsupported = (request: InferenceRequest, model: Model): InferenceRequest => {
  if (request.thinkIfAble !== true || request.body["think"] === undefined || !cannotThink(model))
    return request
  const { think: _think, ...body } = request.body
  return { ...request, body }
}
