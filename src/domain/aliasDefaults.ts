/**
 * What an alias adds to a request that does not say it itself, as a Modelfile would: the window, whether the model thinks, and a
 * system text. As Ollama does with a Modelfile, the system text is left out when the client sends one.
 */
import type { AliasDefaults } from "./attributes.ts"
import type { InferenceRequest, Json } from "./Inference.ts"
import { isArray, isObject } from "./json.ts"
import { bytesPerToken, tokensOfBytes, tokensPerMessage } from "./Usage.ts"

const hasText = (value: Json | undefined): boolean => value !== undefined && value !== null && value !== ""

const isSystem = (message: Json): boolean => isObject(message) && message["role"] === "system"

const larger = (request: InferenceRequest, bytes: number, tokens: number): InferenceRequest =>
  request.counted === undefined
    ? {
        ...request,
        promptBytes: request.promptBytes + bytes,
        promptEstimate: request.promptEstimate + tokens
      }
    : { ...request, counted: request.counted + tokens }

/** Neither a request that only loads the model nor a raw one has a system text. */
const withSystem = (request: InferenceRequest, system: string): InferenceRequest => {
  const { body, kind } = request
  const { messages, prompt } = body
  const [bytes, tokens] = [Buffer.byteLength(system), tokensOfBytes(Buffer.byteLength(system))]
  if (kind === "generate")
    return hasText(body["system"]) || !hasText(prompt) || body["raw"] === true
      ? request
      : larger({ ...request, body: { ...body, system } }, bytes, tokens)
  if (messages === undefined || !isArray(messages) || messages.length === 0 || messages.some(isSystem))
    return request
  const all = [{ role: "system", content: system }, ...messages]
  return larger(
    { ...request, body: { ...body, messages: all } },
    bytes + bytesPerToken * tokensPerMessage,
    tokens + tokensPerMessage
  )
}

/** `numCtxCap`: `NUM_CTX_CAP`, which bounds the window of an alias too. */
export const withDefaults = (
  request: InferenceRequest,
  { num_ctx: window, system, think }: AliasDefaults,
  numCtxCap = Number.POSITIVE_INFINITY
): InferenceRequest => {
  const { body, kind, options } = request
  const sized =
    window === undefined || options["num_ctx"] !== undefined
      ? request
      : { ...request, options: { ...options, num_ctx: Math.min(window, numCtxCap) } }
  if (kind !== "chat" && kind !== "generate" && kind !== "count") return sized
  const told = system === undefined ? sized : withSystem(sized, system)
  if (think === undefined || (body["think"] ?? null) !== null) return told
  const value = think === "on" ? true : think === "off" ? false : think
  return { ...told, thinkIfAble: true, body: { ...told.body, think: value } }
}
