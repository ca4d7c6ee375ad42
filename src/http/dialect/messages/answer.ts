/** The answer of `POST /v1/messages`: events of content blocks, or one message (docs/protocol.md, "Messages answers"). */
import type { Frame, ToolCall } from "../../../domain/Frame.ts"
import type { AnsweredRequest, Json, JsonObject } from "../../../domain/Inference.ts"
import { jsonText } from "../../../domain/json.ts"
import { type AnswerFacts, type Encoder, joined } from "../Dialect.ts"
import { messagesError } from "./surface.ts"

/** One event. Its name is in its data too. */
const event = (type: string, data: JsonObject = {}): string =>
  `event: ${type}\ndata: ${jsonText({ type, ...data })}\n\n`

/** As Anthropic counts: the tokens that were read from a cache are not among `input_tokens`. */
const usageOf = ({ evalCount = 0, promptEvalCachedCount, promptEvalCount = 0 }: Frame): JsonObject => {
  if (promptEvalCachedCount === undefined) return { input_tokens: promptEvalCount, output_tokens: evalCount }
  const cached = Math.min(promptEvalCachedCount, promptEvalCount)
  return {
    input_tokens: promptEvalCount - cached,
    cache_creation_input_tokens: 0,
    cache_read_input_tokens: cached,
    output_tokens: evalCount
  }
}

const stopReasonOf = ({ doneReason }: Frame, hasCalls: boolean): string => {
  if (hasCalls) return "tool_use"
  return doneReason === "length" ? "max_tokens" : "end_turn"
}

export const messagesEncoder = (request: AnsweredRequest, { requestId }: AnswerFacts): Encoder => {
  const id = requestId.replaceAll("-", "")
  let started = false
  /** the index of the next block; the open one has the index before it */
  let blocks = 0
  let open: "text" | "thinking" | undefined
  let hasCalls = false
  /** calls without an id of their own */
  let unnamed = 0

  const messageOf = (content: ReadonlyArray<Json>, stopReason: string | null, usage: Json): JsonObject => ({
    id: `msg_${id}`,
    type: "message",
    role: "assistant",
    model: request.model,
    content,
    stop_reason: stopReason,
    stop_sequence: null,
    usage
  })

  /** Every call gets an id, which its result names. */
  const callOf = (call: ToolCall) => ({
    type: "tool_use",
    id: call.id ?? `toolu_${id}_${unnamed++}`,
    name: call.name
  })

  const start = (): string => {
    if (started) return ""
    started = true
    const usage = { input_tokens: request.promptEstimate, output_tokens: 0 }
    return event("message_start", { message: messageOf([], null, usage) })
  }

  const delta = (data: JsonObject): string => event("content_block_delta", { index: blocks - 1, delta: data })
  const begin = (block: JsonObject): string =>
    event("content_block_start", { index: blocks++, content_block: block })
  const stop = (): string => event("content_block_stop", { index: blocks - 1 })

  const close = (): string => {
    if (open === undefined) return ""
    const signature = open === "thinking" ? delta({ type: "signature_delta", signature: "" }) : ""
    open = undefined
    return signature + stop()
  }

  /** The beginning of a block, unless one of its type is open. */
  const enter = (type: "text" | "thinking"): string => {
    if (open === type) return ""
    const before = close()
    open = type
    return before + begin(type === "text" ? { type, text: "" } : { type, thinking: "", signature: "" })
  }

  const toolCall = (call: ToolCall): string =>
    close() +
    begin({ ...callOf(call), input: {} }) +
    delta({ type: "input_json_delta", partial_json: jsonText(call.arguments) }) +
    stop()

  /** The events of one frame: its reasoning, then its text, then its calls. */
  const eventsOf = (frame: Frame): string => {
    let events = start()
    if (frame.thinking !== undefined)
      events += enter("thinking") + delta({ type: "thinking_delta", thinking: frame.thinking })
    if (frame.text !== "") events += enter("text") + delta({ type: "text_delta", text: frame.text })
    for (const call of frame.toolCalls ?? []) {
      hasCalls = true
      events += toolCall(call)
    }
    return frame.done ? events + end(frame) : events
  }

  const end = (frame: Frame): string =>
    close() +
    event("message_delta", {
      delta: { stop_reason: stopReasonOf(frame, hasCalls), stop_sequence: null },
      usage: usageOf(frame)
    }) +
    event("message_stop")

  const contentOf = ({ text, thinking, toolCalls = [] }: Frame): ReadonlyArray<JsonObject> => [
    ...(thinking === undefined ? [] : [{ type: "thinking", thinking, signature: "" }]),
    ...(text === "" ? [] : [{ type: "text", text }]),
    ...toolCalls.map((call) => ({ ...callOf(call), input: call.arguments }))
  ]

  return {
    frames: (frames) => joined(frames, eventsOf),
    failure: (error, errorId) => {
      const { type, ...rest } = messagesError(error, errorId)
      return event(type, rest)
    },
    waiting: () => start() + event("ping"),
    object: (run) =>
      jsonText(messageOf(contentOf(run), stopReasonOf(run, run.toolCalls !== undefined), usageOf(run)))
  }
}

/** The estimate that a request of the same prompt would hold. */
export const encodeCount = ({ counted }: AnsweredRequest): ReadonlyArray<string> => [
  jsonText({ input_tokens: counted ?? 0 })
]
