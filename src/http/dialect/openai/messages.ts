/** Messages of the OpenAI surface in the shape of Ollama (docs/protocol.md, "OpenAI requests"). */
import { Result, Schema } from "effect"
import { type Decided, refuse } from "../../../domain/Errors.ts"
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import { isObject, present } from "../../../domain/json.ts"
import { parseJson } from "../strictJson.ts"
import { absentable } from "../fields.ts"
import { Content, partsOf } from "./content.ts"

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

/** Decodes arguments from JSON text. Some clients send "" for none. */
export const argumentsOf = (text: string | null | undefined, path: string): Decided<JsonObject> => {
  if (text === undefined || text === null || text === "") return Result.succeed({})
  // As strict as for the body: bounded nesting, and no duplicate keys.
  const parsed = Result.getOrNull(parseJson(text))
  return isObject(parsed) ? Result.succeed(parsed) : refuse(`${path}: expected a JSON object as text`)
}

export const nativeMessages: (messages: ReadonlyArray<Message>) => Decided<ReadonlyArray<JsonObject>> = (
  messages: ReadonlyArray<Message>
) =>
  Result.gen(function* () {
    const native: Array<JsonObject> = []
    // A tool message has the id of its call, but the backend needs the name of the tool.
    let called: Map<string | null | undefined, string> | undefined
    for (const [index, message] of messages.entries()) {
      const path = `messages.${index}`
      const calls = message.tool_calls ?? []
      // Clients send back the assistant's messages, also those without content.
      const isEmpty = message.content === undefined || message.content === null
      if (isEmpty && calls.length === 0 && message.role !== "assistant") {
        return yield* refuse(`${path}.content: missing`)
      }
      const toolCalls: Array<Json> = []
      for (const [i, call] of calls.entries()) {
        const args = yield* argumentsOf(call.function.arguments, `${path}.tool_calls.${i}.function.arguments`)
        toolCalls.push({
          ...present({ id: call.id }),
          function: { name: call.function.name, arguments: args }
        })
      }
      const parts = partsOf(message.content)
      const role = roleOf(message.role)
      native.push({
        role,
        content: parts.text,
        ...present({
          thinking: message.reasoning ?? message.reasoning_content,
          images: parts.images.length === 0 ? undefined : parts.images,
          tool_calls: toolCalls.length === 0 ? undefined : toolCalls,
          tool_call_id: role === "tool" ? message.tool_call_id : undefined,
          tool_name: role === "tool" ? (message.name ?? called?.get(message.tool_call_id)) : undefined
        })
      })
      for (const call of calls) (called ??= new Map()).set(call.id, call.function.name)
    }
    return native
  })
