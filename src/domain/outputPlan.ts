/**
 * Decides how many output tokens a request may cost, and how many of them are held before it is sent.
 *
 * A backend that streams token by token can be metered while it streams: a small part of the output is held at
 * admission, and more as it comes (`Hold`). Some requests make a backend collect its output first: tool calls, a
 * schema, a stop sequence, reasoning. The gateway sees nothing of it until the end, so the whole bound is held at
 * admission.
 *
 * An allow-list of fields decides whether a request is streamed token by token. A new field is not on the list, so a
 * request with it holds its whole bound.
 */
import type { InferenceRequest } from "./Inference.ts"
import type { Model } from "./Model.ts"
import type { Reservation } from "./Reservation.ts"
import { cannotThink } from "./capabilities.ts"

export interface OutputPlan {
  /** number of runs the backend may make for this request, each of up to `num_predict` tokens */
  readonly runs: number
  /** whether the whole bound is held at admission */
  readonly holdsAll: boolean
  /** whether the request makes the backend collect its output; if so, `holdsAll` */
  readonly collects: boolean
}

/** Requests that are answered in one object generate nothing. */
export const noOutput: OutputPlan = { runs: 1, holdsAll: false, collects: false }

/**
 * Output tokens held at admission for a request that is spoken token by token. Small, so that many short answers fit in a
 * small budget at once.
 */
export const expectedOutput = 256

/** Fields of the body that do not make a backend collect its output. */
const spokenFields: ReadonlySet<string> = new Set([
  "messages",
  "prompt",
  "suffix",
  "system",
  "raw",
  "context",
  "images",
  "truncate"
])

/** Options that do not make a backend collect its output. A new option stands here or in `collectingOptions`. */
export const spokenOptions: ReadonlySet<string> = new Set([
  "temperature",
  "top_k",
  "top_p",
  "min_p",
  "typical_p",
  "repeat_last_n",
  "repeat_penalty",
  "presence_penalty",
  "frequency_penalty",
  "seed",
  "num_keep",
  "num_ctx"
])

/** Options that make a backend collect its output, as every name does that is in neither list. */
export const collectingOptions: ReadonlySet<string> = new Set(["stop"])

const isSpoken = ({ body, options }: InferenceRequest): boolean => {
  for (const name in body)
    if (!spokenFields.has(name) && !(name === "think" && body[name] === false)) return false
  for (const name in options) if (!spokenOptions.has(name)) return false
  return true
}

/** `request` is what is sent: after `dropUnsupported`. `speaks`: whether the model is known to speak token by token. */
export const outputPlanOf = (request: InferenceRequest, model: Model, speaks: boolean): OutputPlan => {
  const collects = !isSpoken(request)
  return {
    // Ollama lets a model think freely first, then runs it again on the schema; without `think` a model that can does.
    runs:
      request.kind === "chat" &&
      request.body["format"] !== undefined &&
      request.body["think"] !== false &&
      !cannotThink(model)
        ? 2
        : 1,
    holdsAll: collects || !speaks,
    collects
  }
}

/** What is asked of the Meter. `least` is held however little remains: the prompt, and one token of each run. */
export const tokensToHold = (
  { holdsAll, runs }: OutputPlan,
  promptEstimate: number,
  maxTokens: number
): { readonly tokens: number; readonly least: number } => ({
  tokens: promptEstimate + (holdsAll ? runs * maxTokens : Math.min(maxTokens, expectedOutput)),
  least: promptEstimate + runs * Math.min(maxTokens, 1)
})

/**
 * The `num_predict` that is sent: all runs together fit in what is held, or, for a request whose hold grows, in what
 * remained at admission. At least 1, because the backend takes 0 and less for other things.
 */
export const numPredictOf = (
  { holdsAll, runs }: OutputPlan,
  reservation: Pick<Reservation, "held" | "available">,
  promptEstimate: number,
  maxTokens: number
): number => {
  const room = (holdsAll ? reservation.held : reservation.available) - promptEstimate
  return Math.max(1, Math.min(maxTokens, Math.floor(room / runs)))
}
