/** The request of `POST /api/chat`. Known fields only; other fields are dropped (docs/protocol.md, "Chat"). */
import { Result, Schema } from "effect"
import type { DecodedRequest, JsonObject } from "../../../domain/Inference.ts"
import { type Bounds, requestDecoder } from "../Dialect.ts"
import { present } from "../../../domain/json.ts"
import { absentable, AnyObject, Images } from "../fields.ts"
import { functionTool } from "../tools.ts"
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
  })
})

const Chat = Schema.Struct({
  ...generationFields,
  messages: absentable(Schema.Array(Message), "without any, the model is only loaded"),
  tools: absentable(Schema.Array(Tool), "what the model may call")
})

const messageOf = (message: typeof Message.Type): JsonObject => ({
  ...present({ ...message, tool_calls: message.tool_calls?.map(toolCallOf) }),
  content: message.content ?? ""
})

const toolCallOf = (call: typeof ToolCall.Type): JsonObject => ({
  ...present({ id: call.id }),
  function: { name: call.function.name, arguments: call.function.arguments ?? {} }
})

export const toolOf = (tool: typeof Tool.Type): JsonObject => functionTool(tool.function)

export const chatRequest = requestDecoder(Chat, (chat: typeof Chat.Type, bounds: Bounds) =>
  Result.map(optionsOf(chat, bounds), (asked): DecodedRequest => {
    const messages = chat.messages ?? []
    return {
      ...asked,
      kind: "chat",
      // Without messages Ollama only loads the model, and answers one object also when `stream` is true.
      stream: messages.length > 0 && (chat.stream ?? true),
      body: {
        ...present({ messages: messages.map(messageOf), tools: chat.tools?.map(toolOf) }),
        ...forwardedOf(chat)
      }
    }
  })
)
