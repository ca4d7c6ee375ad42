/** What is left of a request when its model is known: the text of its call, and what the gates and its answer need of it. */
import { CallText } from "./CallText.ts"
import type { InferenceRequest, Json, PreparedRequest } from "./Inference.ts"
import { cannotThink, type Model } from "./Model.ts"
import { isCollecting } from "./outputPlan.ts"
import { promptFactsOf } from "./promptWindow.ts"

const inputsOf = (input: Json): number => (Array.isArray(input) ? input.length : input === "" ? 0 : 1)

/** Entries of log probabilities for each token: its own, and the most likely ones. */
const logprobsOf = ({ logprobs, top_logprobs: top }: InferenceRequest["body"]): number =>
  logprobs === true ? 1 + (typeof top === "number" ? top : 0) : 0

/** `think` is left out for a model that cannot, where the surface allows that. */
export const prepare = (request: InferenceRequest, model: Model): PreparedRequest => {
  const { body, sealedContext: _context, ...kept } = request
  const { think, ...fields } = body
  return {
    ...kept,
    text: new CallText(fields),
    think: request.thinkIfAble === true && cannotThink(model) ? undefined : think,
    hasFormat: body["format"] !== undefined,
    collects: isCollecting(request),
    // An empty string is no input; an empty string in a list is one (docs/protocol.md, "Embeddings").
    inputs: inputsOf(body["input"] ?? body["prompt"] ?? null),
    logprobs: logprobsOf(body),
    prompt: promptFactsOf(request)
  }
}

/** Bytes of the texts of a request. A text of V8 may take two for each character. */
export const bytesOf = ({ echo = "", echoed, text }: PreparedRequest): number =>
  text.bytes + (echoed?.length ?? 0) + 2 * echo.length
