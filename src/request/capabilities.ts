/**
 * Whether a request suits its model, as far as discovery knows. A context is of one version of one model: another may not
 * have its token ids, and an unknown id ends the model server. Reasoning is the other case: the native surface refuses
 * it in its own words, on the OpenAI surface it is left out (docs/protocol.md, "OpenAI requests"). When the capabilities
 * of a model are unknown, the backend decides.
 */
import { Effect } from "effect"
import { BadRequest } from "../domain/Errors.ts"
import type { InferenceRequest } from "../domain/Inference.ts"
import type { Model } from "../domain/Model.ts"

/** Whether the model is known not to think. */
export const cannotThink = (model: Model): boolean =>
  model.capabilities !== undefined && !model.capabilities.includes("thinking")

/** After the model's gate and before anything is consumed. */
export const checkCapabilities = (
  request: InferenceRequest,
  model: Model
): Effect.Effect<void, BadRequest> => {
  if (request.contextDigest !== undefined && request.contextDigest !== model.digest) {
    return Effect.fail(
      new BadRequest({ detail: "context: expected one of this model, as it is installed now" })
    )
  }
  const wanted = request.body["think"]
  return wanted !== undefined && wanted !== false && request.thinkIfAble !== true && cannotThink(model)
    ? Effect.fail(new BadRequest({ detail: "think: this model does not support thinking" }))
    : Effect.void
}

/** The request as the model can take it. */
export const dropUnsupported = (request: InferenceRequest, model: Model): InferenceRequest => {
  if (request.thinkIfAble !== true || request.body["think"] === undefined || !cannotThink(model))
    return request
  const { think: _wish, ...body } = request.body
  return { ...request, body }
}
