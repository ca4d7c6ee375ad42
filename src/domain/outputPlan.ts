/**
 * Decides how many output tokens a request may cost, and how many of them are held before it is sent.
 *
 * A part of the output is held at admission, and more as it comes (`Hold`). An answer that the backend streams token by token
 * is seen while it is generated, so the part is small. Some requests make the backend collect its output first: tool calls, a
 * schema, a stop sequence, reasoning. The gateway sees nothing of it for a long time, so it holds what the model's last
 * answers of this kind used (`ModelHabits`). docs/threat-model.md says by how much such output can be more than the budget.
 */
import type { DecodedRequest, OutputPlan, PreparedRequest } from "./Inference.ts"
import { cannotThink, type Model } from "./Model.ts"
import type { Reservation } from "./Reservation.ts"

/** Requests that are answered in one object generate nothing. */
export const noOutput: OutputPlan = { runs: 1, unseen: false, collects: false }

/**
 * Output tokens held at admission for a request that is streamed token by token. The number is small, so that many short
 * answers fit in a small budget at the same time.
 */
export const expectedOutput = 256

/** Output tokens held at least at admission for a request whose output is not seen: a usual call of a tool, with a file in it. */
export const leastUnseen = 2048

/** Fields of the body that do not make a backend collect its output. With a field that is on no list, the output counts as unseen. */
const streamingFields: ReadonlySet<string> = new Set([
  "messages",
  "prompt",
  "suffix",
  "system",
  "raw",
  "context",
  "images",
  "truncate",
  "shift"
])

/** Options that do not make a backend collect its output. A new option must be here or in `collectingOptions`. */
export const streamingOptions: ReadonlySet<string> = new Set([
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

/** Options that make a backend collect its output. A name in neither list counts as one of them. */
export const collectingOptions: ReadonlySet<string> = new Set(["stop"])

/** Whether a field, or an option, is on neither list. `think` is left aside: it depends on the model. */
export const isCollecting = ({ body, options }: Pick<DecodedRequest, "body" | "options">): boolean => {
  for (const name in body) if (!streamingFields.has(name) && name !== "think") return true
  for (const name in options) if (!streamingOptions.has(name)) return true
  return false
}

/** `streams`: whether the model is known to stream token by token. */
export const outputPlanOf = (request: PreparedRequest, model: Model, streams: boolean): OutputPlan => {
  const collects = request.collects || (request.think ?? false) !== false
  return {
    // With a schema, Ollama lets a model think first and then runs it again. Without `think`, a model that can think does.
    runs:
      request.kind === "chat" && request.hasFormat && request.think !== false && !cannotThink(model) ? 2 : 1,
    unseen: collects || !streams,
    collects
  }
}

/**
 * The tokens to reserve. At least `least` must be granted: the prompt, and one token of each run. `usual`: the output of the
 * model's last answers that were not seen while they were generated.
 */
export const tokensToHold = (
  { runs, unseen }: OutputPlan,
  promptEstimate: number,
  outputBound: number,
  usual: number
): { readonly tokens: number; readonly least: number } => ({
  tokens:
    promptEstimate + Math.min(runs * outputBound, unseen ? Math.max(leastUnseen, usual) : expectedOutput),
  least: promptEstimate + runs * Math.min(outputBound, 1)
})

/**
 * The `num_predict` that is sent. All runs together fit in what remained at admission. It is at least 1, because 0 and less
 * mean something else to the backend.
 */
export const numPredictOf = (
  { runs }: OutputPlan,
  { available }: Pick<Reservation, "available">,
  promptEstimate: number,
  outputBound: number
): number => Math.max(1, Math.min(outputBound, Math.floor((available - promptEstimate) / runs)))
