/** Messages of the OpenAI surface in the shape of Ollama (docs/protocol.md, "OpenAI requests"). */
import { Result, Schema } from "effect"
import { decide, type Decided, refuse } from "../../../domain/Errors.ts"
import type { JsonObject } from "../../../domain/Inference.ts"
import { isObject } from "../../../domain/json.ts"
import { parseJson } from "../strictJson.ts"
import { Calls, nativeMessage } from "../conversation.ts"
import { absentable, base64Of, ImageUrl } from "../fields.ts"

/** Images are `data:` URLs only, because the gateway fetches nothing for a client. */
const Part = Schema.Union([
  Schema.Struct({ type: Schema.Literal("text"), text: Schema.String }),
  Schema.Struct({ type: Schema.Literal("refusal"), refusal: Schema.String }),
  Schema.Struct({
    type: Schema.Literal("image_url"),
    image_url: Schema.Union([ImageUrl, Schema.Struct({ url: ImageUrl })])
  })
])

const Content = Schema.Union([Schema.String, Schema.Array(Part)])

const ToolCall = Schema.Struct({
  id: absentable(Schema.String),
  type: absentable(Schema.Literal("function")),
  function: Schema.Struct({
    name: Schema.String,
    arguments: absentable(Schema.String, "a JSON object as text")
  })
})

export const Message = Schema.Struct({
  role: Schema.Literals(["system", "developer", "user", "assistant", "tool", "function"]),
  content: absentable(Content),
  name: absentable(Schema.String),
  reasoning: absentable(Schema.String),
  reasoning_content: absentable(Schema.String),
  tool_calls: absentable(Schema.Array(ToolCall)),
  tool_call_id: absentable(Schema.String)
}).annotate({
  anyOf: [
    { required: ["content"], properties: { content: { type: ["string", "array"] } } },
    { required: ["tool_calls"], properties: { tool_calls: { type: "array", minItems: 1 } } },
    { properties: { role: { const: "assistant" } } }
  ]
})

export type Message = typeof Message.Type

const roleOf = (role: Message["role"]): string =>
  role === "developer" ? "system" : role === "function" ? "tool" : role

/** The backend takes one string. Ollama makes a message of each part, and joins those of one role with an empty line. */
const textOf = (content: typeof Content.Type): string =>
  typeof content === "string"
    ? content
    : content
        .flatMap((part) => ("text" in part ? [part.text] : "refusal" in part ? [part.refusal] : []))
        .join("\n\n")

/** Bare base64. */
const imagesOf = (content: typeof Content.Type): ReadonlyArray<string> =>
  typeof content === "string"
    ? []
    : content.flatMap((part) => {
        if (!("image_url" in part)) return []
        return base64Of(typeof part.image_url === "string" ? part.image_url : part.image_url.url) ?? []
      })

/** Decodes arguments from JSON text. Some clients send "" for none. */
export const argumentsOf = (text: string | null | undefined, path: string): Decided<JsonObject> => {
  if (text === undefined || text === null || text === "") return Result.succeed({})
  // As strict as for the body: bounded nesting, and no duplicate keys.
  const parsed = Result.getOrNull(parseJson(text))
  return isObject(parsed) ? Result.succeed(parsed) : refuse(`${path}: expected a JSON object as text`)
}

export const nativeMessages = decide(function* (messages: ReadonlyArray<Message>) {
  const native: Array<JsonObject> = []
  const made = new Calls()
  for (const [index, message] of messages.entries()) {
    const path = `messages.${index}`
    const calls: Array<JsonObject> = []
    for (const [i, call] of (message.tool_calls ?? []).entries()) {
      const args = yield* argumentsOf(call.function.arguments, `${path}.tool_calls.${i}.function.arguments`)
      calls.push(made.call(call.id, call.function.name, args))
    }
    // Clients send back the assistant's messages, also those without content.
    const isEmpty = message.content === undefined || message.content === null
    if (isEmpty && calls.length === 0 && message.role !== "assistant")
      return yield* refuse(`${path}.content: missing`)
    const [content, role] = [message.content ?? "", roleOf(message.role)]
    const thinking = message.reasoning ?? message.reasoning_content
    const said = { text: textOf(content), thinking, images: imagesOf(content), calls }
    native.push(
      role === "tool"
        ? made.result(message.tool_call_id, said, message.name)
        : nativeMessage({ role, ...said })
    )
  }
  return native
})
