/** The request of `POST /v1/chat/completions`. A field that cannot be honoured is a 400 (docs/protocol.md, "OpenAI requests"). */
import { Schema } from "effect"
import { decide } from "../../../domain/Errors.ts"
import type { DecodedRequest, Json } from "../../../domain/Inference.ts"
import { Calls } from "../conversation.ts"
import { type Bounds, requestDecoder } from "../Dialect.ts"
import { present } from "../../../domain/json.ts"
import { absentable, AnyObject, boundMaxTokens, Effort, MaxTokens, thinkOf, TopLogprobs } from "../fields.ts"
import { offerOf, Tool } from "../native/chatRequest.ts"
import { samplingOf } from "../sampling.ts"
import { chosenTools, maxListed } from "../tools.ts"
import { refused, unsupported } from "../types.ts"
import { endUserClaim, generationFields } from "./fields.ts"
import { Message, nativeMessages } from "./messages.ts"

/** A tool of the client. */
export const ListedTool = Schema.Union([
  Tool,
  ...refused("no free text is called here; send a function with one string as its argument", "custom")
])

export const ResponseFormat = Schema.Union([
  Schema.Struct({ type: Schema.Literals(["text", "json_object"]) }),
  Schema.Struct({
    type: Schema.Literal("json_schema"),
    json_schema: Schema.Struct({ schema: AnyObject })
  })
])

export const ToolChoice = Schema.Union([
  Schema.Literals(["none", "auto", "required"]),
  Schema.Struct({ type: Schema.Literal("function"), function: Schema.Struct({ name: Schema.String }) })
])

const Chat = Schema.Struct({
  ...generationFields,
  messages: Schema.NonEmptyArray(Message),
  max_completion_tokens: absentable(MaxTokens, "used instead of `max_tokens`"),
  tools: absentable(Schema.Array(ListedTool).check(Schema.isMaxLength(maxListed)), "what the model may call"),
  tool_choice: absentable(
    ToolChoice,
    "`none` sends no tools, a name sends only that one; a call cannot be forced"
  ),
  response_format: absentable(ResponseFormat, "JSON, or a JSON schema that the answer has to follow"),
  logprobs: absentable(Schema.Boolean, "whether the answer has log probabilities"),
  top_logprobs: absentable(TopLogprobs, "how many alternatives each of them has"),
  reasoning_effort: absentable(Effort, "`none` is no reasoning; left out for a model that cannot reason"),
  reasoning: absentable(Schema.Struct({ effort: absentable(Effort) }), "used instead of `reasoning_effort`"),
  enable_thinking: absentable(Schema.Boolean, "`false` is no reasoning, whatever `reasoning_effort` says"),
  chat_template_kwargs: absentable(
    Schema.Struct({ enable_thinking: absentable(Schema.Boolean) }),
    "`enable_thinking` as above; everything else is dropped"
  ),
  modalities: unsupported("only text is written here", Schema.Array(Schema.Literal("text"))),
  // An answer would have to call them by `function_call`, too.
  functions: unsupported("send them as `tools`"),
  moderation: unsupported("nothing is moderated here; leave it out")
})

const formatOf = (format: typeof ResponseFormat.Type | null | undefined): Json | undefined =>
  format?.type === "json_schema"
    ? format.json_schema.schema
    : format?.type === "json_object"
      ? "json"
      : undefined

/** Some clients have a switch beside the effort, or within what vLLM and SGLang give to their templates. */
const thinkingOf = ({
  chat_template_kwargs: kwargs,
  enable_thinking,
  ...chat
}: typeof Chat.Type): Json | undefined => {
  const enabled = enable_thinking ?? kwargs?.enable_thinking ?? undefined
  return enabled === false ? false : (thinkOf(chat.reasoning?.effort ?? chat.reasoning_effort) ?? enabled)
}

/** A name does not count where there are no tools. */
const toolsOf = (
  { tool_choice: choice, tools }: typeof Chat.Type,
  { mentioned }: Calls,
  { toolsMax }: Bounds
) => {
  const offers = choice === "none" ? [] : (tools ?? []).map(offerOf)
  const named = offers.length === 0 || typeof choice !== "object" ? undefined : choice?.function.name
  return chosenTools(offers, {
    chosen:
      named === undefined
        ? undefined
        : { names: [named], refusal: "tool_choice.function.name: expected the name of one of tools" },
    mentioned,
    toolsMax
  })
}

export const chatRequest = requestDecoder(
  Chat,
  decide(function* (chat: typeof Chat.Type, bounds: Bounds) {
    const field = (chat.max_completion_tokens ?? -1) < 0 ? "max_tokens" : "max_completion_tokens"
    const bound = yield* boundMaxTokens(field, chat[field], bounds.numPredictCap, bounds.lowersOutput)
    const made = new Calls()
    const messages = yield* nativeMessages(chat.messages, made)
    const tools = yield* toolsOf(chat, made, bounds)
    return {
      kind: "chat",
      model: chat.model,
      ...endUserClaim(chat),
      stream: chat.stream ?? false,
      usageChunk: chat.stream_options?.include_usage === true,
      body: present({
        messages,
        tools,
        format: formatOf(chat.response_format),
        think: thinkingOf(chat),
        logprobs: chat.logprobs,
        top_logprobs: chat.top_logprobs
      }),
      options: samplingOf(chat),
      thinkIfAble: true,
      ...bound
    } satisfies DecodedRequest
  }),
  { schema: "response_format.json_schema.schema", toolSchema: "function.parameters" }
)
