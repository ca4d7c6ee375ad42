/** The request of `POST /api/chat`. Known fields only; other fields are dropped (docs/protocol.md, "Chat"). */
import { Schema } from "effect"
import { decide } from "../../../domain/Errors.ts"
import type { DecodedRequest, JsonObject } from "../../../domain/Inference.ts"
import { type Bounds, requestDecoder } from "../Dialect.ts"
import { present } from "../../../domain/json.ts"
import { absentable, AnyObject, Images } from "../fields.ts"
import { chosenTools, maxListed, type Offer, offer } from "../tools.ts"
import { forwardedOf, generationFields, optionsOf } from "./fields.ts"

/**
 * Templates of models know roles of their own: Granite switches reasoning on with `control`, and takes texts as
 * `document <name>`. A template that refuses a role is a 400 (`backend/ollama/errors.ts`).
 */
const Role = Schema.String.check(Schema.isMaxLength(64, { expected: "at most 64 characters" }))

const ToolCall = Schema.Struct({
  id: absentable(Schema.String),
  function: Schema.Struct({ name: Schema.String, arguments: absentable(AnyObject) })
})

export const Message = Schema.Struct({
  role: Role,
  content: absentable(Schema.String),
  thinking: absentable(Schema.String),
  images: absentable(Images),
  tool_calls: absentable(Schema.Array(ToolCall)),
  tool_name: absentable(Schema.String),
  tool_call_id: absentable(Schema.String)
})

export const Tool = Schema.Struct({
  type: Schema.Literal("function"),
  function: Schema.Struct({
    name: Schema.String,
    description: absentable(Schema.String),
    parameters: absentable(AnyObject, "a JSON schema")
  }),
  defer_loading: absentable(
    Schema.Boolean,
    "whether it may be left out when there are more than TOOLS_MAX and the conversation does not mention it"
  )
})

const Chat = Schema.Struct({
  ...generationFields,
  messages: absentable(Schema.Array(Message), "without any, the model is only loaded"),
  tools: absentable(Schema.Array(Tool).check(Schema.isMaxLength(maxListed)), "what the model may call")
})

const messageOf = (message: typeof Message.Type): JsonObject => ({
  ...present({ ...message, tool_calls: message.tool_calls?.map(toolCallOf) }),
  content: message.content ?? ""
})

const toolCallOf = (call: typeof ToolCall.Type): JsonObject => ({
  ...present({ id: call.id }),
  function: { name: call.function.name, arguments: call.function.arguments ?? {} }
})

export const offerOf = (tool: typeof Tool.Type): Offer => offer(tool.function, tool.defer_loading)

const calledIn = ({ tool_calls }: typeof Message.Type): ReadonlyArray<string> =>
  (tool_calls ?? []).map((call) => call.function.name)

export const chatRequest = requestDecoder(
  Chat,
  decide(function* (chat: typeof Chat.Type, bounds: Bounds) {
    const messages = chat.messages ?? []
    return {
      ...(yield* optionsOf(chat, bounds)),
      kind: "chat",
      // Without messages Ollama only loads the model, and answers one object also when `stream` is true.
      stream: messages.length > 0 && (chat.stream ?? true),
      body: {
        ...present({
          messages: messages.map(messageOf),
          tools: yield* chosenTools((chat.tools ?? []).map(offerOf), {
            mentioned: new Set(messages.flatMap(calledIn)),
            toolsMax: bounds.toolsMax
          })
        }),
        ...forwardedOf(chat)
      }
    } satisfies DecodedRequest
  })
)
