/**
 * Checks whether a model can do what a request asks for, as far as its capabilities are known. A context belongs to
 * one version of one model: another version may not know its token ids, and an unknown id crashes the model server.
 * Reasoning for a model that cannot think is refused on the native surface, and left out on the OpenAI surface
 * (docs/protocol.md, "OpenAI requests"). When the capabilities are unknown, the backend decides.
 */
import { Result } from "effect"
import { type Decided, refuse } from "./Errors.ts"
import type { ImageInfo, InferenceRequest } from "./Inference.ts"
import type { Model } from "./Model.ts"
import { fieldWithLongRun, maxRun, overflowsOnLongRuns } from "./textRuns.ts"

/** Whether the model is known not to think. */
export const cannotThink = (model: Model): boolean =>
  model.capabilities !== undefined && !model.capabilities.includes("thinking")

const hasFamily = ({ details }: Model, matches: (family: string) => boolean): boolean => {
  const { families } = details
  return Array.isArray(families) && families.some((family) => typeof family === "string" && matches(family))
}

/**
 * Returns what is wrong with an image for this model. For a model with a separate projector (llava and similar ones),
 * llama.cpp decodes the images. It reads PNG and JPEG, and the runner of Ollama 0.24 crashes on an image that it cannot
 * decode. The image processor of Qwen's models panics when a side is too small or the sides differ too much.
 */
const imageProblem = (model: Model, { complete, format, height, width }: ImageInfo): string | undefined => {
  if (
    hasFamily(model, (family) => family === "clip") &&
    !(complete && (format === "png" || format === "jpeg"))
  )
    return "expected a whole PNG or JPEG, this model reads no other"
  const [short, long] = [Math.min(width, height), Math.max(width, height)]
  if (hasFamily(model, (family) => /^qwen.*vl/.test(family)) && (short < 32 || long > 200 * short))
    return "expected sides of 32 pixels or more, one at most 200 times the other, for this model"
  return undefined
}

/** Fails with the first thing that the model cannot do. Runs before anything is reserved. */
export const checkCapabilities = (request: InferenceRequest, model: Model): Decided<void> => {
  if (request.contextDigest !== undefined && request.contextDigest !== model.digest) {
    return refuse("context: expected one of this model, as it is installed now")
  }
  for (const image of request.images ?? []) {
    const problem = imageProblem(model, image)
    if (problem !== undefined) return refuse(`images: ${problem}`)
  }
  if (model.tokenizer !== undefined && overflowsOnLongRuns(model.tokenizer)) {
    const field = fieldWithLongRun(request.body)
    if (field !== undefined) {
      return refuse(`${field}: this model takes at most ${maxRun} letters, digits, signs or blanks in a row`)
    }
  }
  const { think } = request.body
  return think !== undefined && think !== false && request.thinkIfAble !== true && cannotThink(model)
    ? refuse("think: this model does not support thinking")
    : Result.void
}

/** Removes what the model cannot do from a request. */
export const dropUnsupported = (request: InferenceRequest, model: Model): InferenceRequest => {
  if (request.thinkIfAble !== true || request.body["think"] === undefined || !cannotThink(model))
    return request
  const { think: _think, ...body } = request.body
  return { ...request, body }
}
