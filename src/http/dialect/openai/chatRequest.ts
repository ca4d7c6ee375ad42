/** The request of `POST /v1/chat/completions`. A field that cannot be honoured is a 400 (docs/protocol.md, "OpenAI requests"). */
import { Effect, Schema } from "effect"
import { BadRequest } from "../../../domain/Errors.ts"
import type { DecodedRequest, Json } from "../../../domain/Inference.ts"
import { requestDecoder } from "../Dialect.ts"
import { absentable, present } from "../decode.ts"
import { checkMaxTokens, MaxTokens } from "../bounds.ts"
import { Tool, toolOf } from "../native/chatRequest.ts"
import { TopLogprobs } from "../native/fields.ts"
import { Message, nativeMessages } from "./messages.ts"
import { openaiSamplingFields, openaiSamplingOf, StreamOptions } from "./sampling.ts"

const ResponseFormat = Schema.Union([
  Schema.Struct({ type: Schema.Literals(["text", "json_object"]) }),
  Schema.Struct({
    type: Schema.Literal("json_schema"),
    json_schema: Schema.Struct({ schema: Schema.JsonObject })
  })
])

const ToolChoice = Schema.Union([
  Schema.Literals(["none", "auto", "required"]),
  Schema.Struct({ type: Schema.Literal("function"), function: Schema.Struct({ name: Schema.String }) })
])

const Effort = Schema.Literals(["none", "minimal", "low", "medium", "high", "max", "xhigh", "ultra"])

const Chat = Schema.Struct({
  ...openaiSamplingFields,
  model: Schema.NonEmptyString,
  stream: absentable(Schema.Boolean),
  stream_options: absentable(StreamOptions),
  messages: Schema.NonEmptyArray(Message),
  max_completion_tokens: absentable(MaxTokens),
  tools: absentable(Schema.Array(Tool)),
  tool_choice: absentable(ToolChoice),
  response_format: absentable(ResponseFormat),
  logprobs: absentable(Schema.Boolean),
  top_logprobs: absentable(TopLogprobs),
  reasoning_effort: absentable(Effort),
  reasoning: absentable(Schema.Struct({ effort: absentable(Effort) })),
  modalities: absentable(Schema.Array(Schema.Literal("text")))
})

const formatOf = (format: typeof ResponseFormat.Type | null | undefined): Json | undefined => {
  switch (format?.type) {
    case "json_object":
      return "json"
    case "json_schema":
      return format.json_schema.schema
    default:
      return undefined
  }
}

/** `none` sends no tools, a name sends that one; nothing can force the backend to use any. */
const toolsOf = Effect.fnUntraced(function* (chat: typeof Chat.Type) {
  const choice = chat.tool_choice
  if (chat.tools === undefined || chat.tools === null || chat.tools.length === 0 || choice === "none")
    return undefined
  const tools = chat.tools
  if (choice === undefined || choice === null || typeof choice === "string") return tools.map(toolOf)
  const named = tools.filter((tool) => tool.function.name === choice.function.name)
  if (named.length === 0) {
    return yield* new BadRequest({ detail: "tool_choice.function.name: expected the name of one of tools" })
  }
  return named.map(toolOf)
})

const thinkOf = (effort: typeof Effort.Type | null | undefined): Json | undefined => {
  switch (effort) {
    case undefined:
    case null:
      return undefined
    case "none":
      return false
    case "minimal":
      return "low"
    case "xhigh":
    case "ultra":
      return "max"
    default:
      return effort
  }
}

export const chatRequest = requestDecoder(
  Chat,
  Effect.fnUntraced(function* (chat, bounds) {
    const legacy = yield* checkMaxTokens("max_tokens", chat.max_tokens, bounds.numPredictCap)
    const wanted = yield* checkMaxTokens(
      "max_completion_tokens",
      chat.max_completion_tokens,
      bounds.numPredictCap
    )
    const messages = yield* nativeMessages(chat.messages)
    const tools = yield* toolsOf(chat)
    return {
      kind: "chat",
      model: chat.model,
      stream: chat.stream ?? false,
      usageChunk: chat.stream_options?.include_usage === true,
      body: present({
        messages,
        tools,
        format: formatOf(chat.response_format),
        think: thinkOf(chat.reasoning?.effort ?? chat.reasoning_effort),
        logprobs: chat.logprobs,
        top_logprobs: chat.top_logprobs
      }),
      options: openaiSamplingOf(chat),
      thinkIfAble: true,
      maxTokens: wanted ?? legacy
    } satisfies DecodedRequest
  }),
  "response_format.json_schema.schema"
)
