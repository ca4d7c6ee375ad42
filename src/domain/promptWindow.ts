/**
 * Whether a prompt fits in the context window of its model. Ollama drops the beginning of a prompt that does not, and says
 * nothing about it (docs/protocol.md, "Context windows").
 *
 * The gateway cannot count tokens. It has two figures instead. `promptEstimate` may be too high or too low, so it makes it
 * only likely that a prompt does not fit. `leastTokens` is never too high, so it proves it.
 */
import { Result } from "effect"
import { BadRequest, type Decided } from "./Errors.ts"
import type { InferenceRequest, Json, PreparedRequest, PromptFacts } from "./Inference.ts"
import { isArray, isObject } from "./json.ts"
import type { Model, OfferedModel } from "./Model.ts"

export interface WindowPolicy {
  /** `BACKEND_CONTEXT_LENGTH`: the window of models without one of their own; undefined: not known */
  readonly defaultTokens: number | undefined
  /** `PROMPT_OVERFLOW=refuse` */
  readonly refuses: boolean
  /** `NUM_CTX_CAP`; absent: windows of aliases have no bound */
  readonly numCtxCap?: number
}

/** What is known when nothing is configured. */
export const noPolicy: WindowPolicy = { defaultTokens: undefined, refuses: false }

/** Ollama gives a model that sees images at least this. */
const leastForVision = 2048

/** The forwarded `num_ctx`, else the model's own, else the server's default; undefined when none is known. */
export const windowOf = (
  request: Pick<InferenceRequest, "options">,
  model: Model,
  { defaultTokens }: WindowPolicy
): number | undefined => {
  const sent = request.options["num_ctx"]
  const tokens = typeof sent === "number" ? sent : (model.numCtx ?? defaultTokens)
  if (tokens === undefined) return undefined
  const given = isSeeing(model) ? Math.max(tokens, leastForVision) : tokens
  return Math.min(model.contextLength ?? Number.POSITIVE_INFINITY, given)
}

/** The model with the window that a request has which asks for no other one. */
export const withWindow =
  (policy: WindowPolicy) =>
  (offered: OfferedModel): OfferedModel => {
    const { numCtx } = offered
    const most = policy.numCtxCap ?? Number.POSITIVE_INFINITY
    const options = numCtx === undefined ? {} : { num_ctx: Math.min(numCtx, most) }
    const window = windowOf({ options }, offered.model, policy)
    return window === undefined ? offered : { ...offered, window }
  }

const isSeeing = ({ capabilities }: Model): boolean => capabilities?.includes("vision") === true

/** The longest tokens of public vocabularies are runs of 128 blanks or signs. */
const longestToken = 128

/**
 * Tokenizers split a text at blanks first, so each word is at least a token. Letters, digits and signs without blanks
 * between them are one word here.
 */
export const leastTokensOf = (text: string): number => {
  let [tokens, length] = [0, 0]
  for (let i = 0; i < text.length; i += 1) {
    const code = text.charCodeAt(i)
    // Blanks and control characters; other blanks of Unicode count as letters, which makes the figure lower.
    if (code > 0x20) {
      if (length % longestToken === 0) {
        tokens += 1
      }
      length += 1
    } else length = 0
  }
  return tokens
}

const textOf = (value: Json | undefined): string => (typeof value === "string" ? value : "")

/**
 * The inputs, each with its texts that every template writes into the prompt: it may leave out tools, reasoning, and what a
 * system message says.
 */
const certainTexts = ({ body, kind }: InferenceRequest): ReadonlyArray<ReadonlyArray<string>> => {
  const { input, messages, prompt } = body
  if (kind === "embed") {
    return isArray(input ?? null) ? listOf(input).map((text) => [text]) : [[textOf(input)]]
  }
  if (messages === undefined || !isArray(messages)) return [[textOf(prompt)]]
  return [
    messages.map((message) =>
      isObject(message) && message["role"] === "user" ? textOf(message["content"]) : ""
    )
  ]
}

const listOf = (value: Json | undefined): ReadonlyArray<string> =>
  value !== undefined && isArray(value) ? value.map(textOf) : []

/** The least tokens of the prompt, or of the longest of several inputs. */
export const leastTokens = (request: InferenceRequest): number => {
  let most = 0
  for (const texts of certainTexts(request)) {
    let tokens = 0
    for (const text of texts) tokens += leastTokensOf(text)
    most = Math.max(most, tokens)
  }
  return most
}

/** The estimate of the prompt, or of the longest of several inputs. */
const estimateOf = (request: InferenceRequest): number => {
  const { input } = request.body
  const inputs = request.kind === "embed" ? listOf(input) : []
  return inputs.length < 2
    ? request.promptEstimate
    : Math.max(...inputs.map((text) => Math.ceil(Buffer.byteLength(text) / 4)))
}

/** Whether the request is likely to be cut: by the estimate, which may be too high. */
export const isLikelyCut = (
  { prompt, promptEstimate }: PreparedRequest,
  window: number | undefined
): boolean => window !== undefined && promptEstimate > window && prompt.estimate > window

/** The sentence that clients read; some of them look for "maximum context length". */
export const overflowDetail = (window: number, estimate: number): string =>
  `the prompt does not fit: this model's maximum context length is ${window} tokens, and the prompt has ${estimate > window ? `about ${estimate}` : "more"}`

/** Whether the client wants its prompt to be cut. Then cutting it is not silent. */
const wantsCut = ({ body }: InferenceRequest): boolean => body["truncate"] === true

/** Refuses a prompt that certainly does not fit, where `PROMPT_OVERFLOW` says so. */
export const checkWindow = (
  request: InferenceRequest,
  window: number | undefined,
  { refuses }: WindowPolicy
): Decided<void> => {
  // A word and the blank after it have two bytes, so most prompts need no reading.
  if (!refuses || window === undefined || request.promptBytes < 2 * window || wantsCut(request))
    return Result.void
  const least = leastTokens(request)
  return least > window
    ? Result.fail(
        new BadRequest({
          detail: overflowDetail(window, Math.max(least, estimateOf(request))),
          overflow: true
        })
      )
    : Result.void
}

/**
 * The request with the model server's own refusal of prompts that are too long, and without the dropping of the prompt's
 * beginning during the answer. A server that does not know these fields ignores them.
 */
export const refusingOverflow = (request: InferenceRequest): InferenceRequest => {
  const { body, kind } = request
  switch (kind) {
    case "chat":
    case "generate":
      return { ...request, body: { ...body, truncate: body["truncate"] ?? false, shift: false } }
    case "embed":
      return { ...request, body: { ...body, truncate: body["truncate"] ?? false } }
    default:
      return request
  }
}

/** Natural text has at least a token in about four characters; this leaves room for texts with many blanks. */
const charactersPerToken = 6

/** The counts of the model server. */
export interface Counts {
  readonly promptEvalCount?: number
  readonly evalCount?: number
}

/**
 * Whether the model server cut the prompt, by its own counts; undefined when they do not tell. They tell when prompt and answer
 * reach the window, and when the count is less than the prompt can have.
 */
export const wasCut = (
  request: PreparedRequest,
  window: number | undefined,
  { evalCount = 0, promptEvalCount }: Counts
): boolean | undefined => {
  if (promptEvalCount === undefined || promptEvalCount <= 0 || request.kind === "show") return undefined
  const isOne = request.inputs < 2
  if (window !== undefined && isOne && (promptEvalCount >= window || promptEvalCount + evalCount > window))
    return true
  if (isOne && Math.min(request.promptEstimate, request.prompt.leastTokens) > promptEvalCount) return true
  if (!isLikelyCut(request, window)) return window === undefined || !isOne ? undefined : false
  return isOne && request.prompt.characters / charactersPerToken > promptEvalCount ? true : undefined
}

/** Characters of everything that the prompt is made of, as far as templates write it. */
const charactersOf = ({ body }: InferenceRequest): number => {
  const { input, messages, prompt, system } = body
  if (messages === undefined || !isArray(messages)) {
    return textOf(prompt).length + textOf(system).length + textOf(input).length
  }
  let characters = 0
  for (const message of messages) if (isObject(message)) characters += textOf(message["content"]).length
  return characters
}

export const promptFactsOf = (request: InferenceRequest): PromptFacts => ({
  leastTokens: leastTokens(request),
  estimate: estimateOf(request),
  characters: charactersOf(request)
})
