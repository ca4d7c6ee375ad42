/**
 * Checks whether a model can do what a request asks for, as far as its capabilities are known. A context belongs to
 * one version of one model: another version may not know its token ids, and an unknown id crashes the model server.
 * Reasoning for a model that cannot think is refused on the native surface, and left out on the OpenAI surface
 * (docs/protocol.md, "OpenAI requests"). When the capabilities are unknown, the backend decides.
 */
import { Effect } from "effect"
import { BadRequest } from "./Errors.ts"
import type { ImageInfo, InferenceRequest } from "./Inference.ts"
import type { Model } from "./Model.ts"
import { fieldWithLongRun, maxRun, overflowsOnLongRuns } from "./textRuns.ts"

/** Whether the model is known not to think. */
export const cannotThink = (model: Model): boolean =>
  model.capabilities !== undefined && !model.capabilities.includes("thinking")

const isOf = ({ details }: Model, wanted: (family: string) => boolean): boolean => {
  const { families } = details
  return Array.isArray(families) && families.some((family) => typeof family === "string" && wanted(family))
}

/**
 * What is wrong with an image for this model. A model with a projector, a file beside it, has its images decoded by
 * llama.cpp (llava and its kin), which knows PNG and JPEG; the runner of Ollama 0.24 ends on one that it cannot decode. The
 * processor of Qwen's models panics at sides that are too small or too unlike each other.
 */
const imageProblem = (model: Model, { format, height, whole, width }: ImageInfo): string | undefined => {
  if (isOf(model, (family) => family === "clip") && !(whole && (format === "png" || format === "jpeg")))
    return "expected a whole PNG or JPEG, this model reads no other"
  const [short, long] = [Math.min(width, height), Math.max(width, height)]
  if (isOf(model, (family) => /^qwen.*vl/.test(family)) && (short < 32 || long > 200 * short))
    return "expected sides of 32 pixels or more, one at most 200 times the other, for this model"
  return undefined
}

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
  for (const image of request.images ?? []) {
    const problem = imageProblem(model, image)
    if (problem !== undefined) return Effect.fail(new BadRequest({ detail: `images: ${problem}` }))
  }
  if (model.tokenizer !== undefined && overflowsOnLongRuns(model.tokenizer)) {
    const field = fieldWithLongRun(request.body)
    if (field !== undefined) {
      return Effect.fail(
        new BadRequest({
          detail: `${field}: this model takes at most ${maxRun} letters, digits, signs or blanks in a row`
        })
      )
    }
  }
  const wanted = request.body["think"]
  return wanted !== undefined && wanted !== false && request.thinkIfAble !== true && cannotThink(model)
    ? Effect.fail(new BadRequest({ detail: "think: this model does not support thinking" }))
    : Effect.void
}

/** Removes what the model cannot do from a request. */
export const dropUnsupported = (request: InferenceRequest, model: Model): InferenceRequest => {
  if (request.thinkIfAble !== true || request.body["think"] === undefined || !cannotThink(model))
    return request
  const { think: _wish, ...body } = request.body
  return { ...request, body }
}
