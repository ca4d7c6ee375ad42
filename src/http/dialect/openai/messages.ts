/** Messages of the OpenAI surface in the shape of Ollama (docs/protocol.md, "OpenAI requests"). */
import { Schema } from "effect"
import { decide, refuse } from "../../../domain/Errors.ts"
import type { JsonObject } from "../../../domain/Inference.ts"
import { Arguments, type Calls, nativeMessage } from "../conversation.ts"
import { FileData, fileText, lines } from "../documents.ts"
import { absentable, base64Of, ImageUrl } from "../fields.ts"
import { refused, unsupported } from "../types.ts"

/** Images are `data:` URLs only, because the gateway fetches nothing for a client. */
export const Part = Schema.Union([
  Schema.Struct({ type: Schema.Literal("text"), text: Schema.String }),
  Schema.Struct({ type: Schema.Literal("refusal"), refusal: Schema.String }),
  Schema.Struct({
    type: Schema.Literal("image_url"),
    image_url: Schema.Union([ImageUrl, Schema.Struct({ url: ImageUrl })])
  }),
  Schema.Struct({
    type: Schema.Literal("file"),
    file: Schema.Struct({ file_data: FileData, filename: absentable(Schema.String) })
  }),
  ...refused("no sound is heard here; /api/chat takes WAVE files in `images`", "input_audio")
])

const Content = Schema.Union([Schema.String, Schema.Array(Part)])

const Called = Schema.Struct({
  name: Schema.String,
  arguments: absentable(Arguments, "a JSON object as text; other text becomes the argument `input`")
})

const FunctionCall = Schema.Struct({
  id: absentable(Schema.String),
  type: absentable(Schema.Literal("function")),
  function: Called
})

const CustomCall = Schema.Struct({
  id: absentable(Schema.String),
  type: Schema.Literal("custom"),
  custom: Schema.Struct({ name: Schema.String, input: Schema.String })
})

export const ToolCall = Schema.Union([CustomCall, FunctionCall])

export const Message = Schema.Struct({
  role: Schema.Literals(["system", "developer", "user", "assistant", "tool", "function"]),
  content: absentable(Content),
  refusal: absentable(Schema.String, "instead of `content`"),
  audio: unsupported("no sound is kept here; send its words as `content`"),
  name: absentable(Schema.String, "of the tool, in its result; other roles have no place for it"),
  reasoning: absentable(Schema.String),
  reasoning_content: absentable(Schema.String),
  tool_calls: absentable(Schema.Array(ToolCall)),
  function_call: absentable(Called, "as older clients have it in their history, instead of `tool_calls`"),
  tool_call_id: absentable(Schema.String)
}).annotate({
  not: {
    properties: {
      role: { not: { const: "assistant" } },
      content: { type: "null" },
      refusal: { type: "null" },
      function_call: { type: "null" },
      tool_calls: { type: ["array", "null"], maxItems: 0 }
    }
  }
})

export type Message = typeof Message.Type

const roleOf = (role: Message["role"]): string =>
  role === "developer" ? "system" : role === "function" ? "tool" : role

const textOfPart = (part: typeof Part.Type): ReadonlyArray<string> => {
  if ("text" in part) return [part.text]
  if ("refusal" in part) return [part.refusal]
  return "file" in part ? [lines(part.file.filename, fileText(part.file.file_data))] : []
}

/** The backend takes one string. Ollama makes a message of each part, and joins those of one role with an empty line. */
const textOf = (content: typeof Content.Type): string =>
  typeof content === "string" ? content : content.flatMap(textOfPart).join("\n\n")

/** Bare base64. */
const imagesOf = (content: typeof Content.Type): ReadonlyArray<string> =>
  typeof content === "string"
    ? []
    : content.flatMap((part) => {
        if (!("image_url" in part)) return []
        return base64Of(typeof part.image_url === "string" ? part.image_url : part.image_url.url) ?? []
      })

const callOf = (made: Calls, call: typeof ToolCall.Type): JsonObject =>
  "custom" in call
    ? made.call(call.id, call.custom.name, { input: call.custom.input })
    : made.call(call.id, call.function.name, call.function.arguments)

export const nativeMessages = decide(function* (messages: ReadonlyArray<Message>, made: Calls) {
  const native: Array<JsonObject> = []
  for (const [index, message] of messages.entries()) {
    const { function_call: old, tool_calls: listed } = message
    const called = [...(listed ?? []), ...(old === undefined || old === null ? [] : [{ function: old }])]
    const calls = called.map((call) => callOf(made, call))
    const content = message.content ?? message.refusal
    // Clients send back the assistant's messages, also those without content.
    const isEmpty = content === undefined || content === null
    if (isEmpty && calls.length === 0 && message.role !== "assistant")
      return yield* refuse(`messages.${index}.content: missing`)
    const role = roleOf(message.role)
    const thinking = message.reasoning ?? message.reasoning_content
    const said = { text: textOf(content ?? ""), thinking, images: imagesOf(content ?? ""), calls }
    native.push(
      role === "tool"
        ? made.result(message.tool_call_id, said, message.name)
        : nativeMessage({ role, ...said })
    )
  }
  return native
})
