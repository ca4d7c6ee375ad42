/** Messages of content blocks in the shape of Ollama (docs/protocol.md, "Messages requests"). */
import { Result, Schema } from "effect"
import { type Decided, refuse } from "../../../domain/Errors.ts"
import type { JsonObject } from "../../../domain/Inference.ts"
import { present } from "../../../domain/json.ts"
import { absentable, Image, otherThan } from "../fields.ts"

const Text = Schema.Struct({ type: Schema.Literal("text"), text: Schema.String })

const ImageBlock = Schema.Struct({
  type: Schema.Literal("image"),
  source: Schema.Struct({ type: Schema.Literal("base64"), data: Image })
})

const Thinking = Schema.Struct({ type: Schema.Literal("thinking"), thinking: Schema.String })

const call = { id: Schema.NonEmptyString, name: Schema.NonEmptyString, input: absentable(Schema.JsonObject) }
const ToolUse = Schema.Struct({ type: Schema.Literal("tool_use"), ...call })
/** A call that another server has made for the client, in the history of a conversation. */
const ServerToolUse = Schema.Struct({ type: Schema.Literal("server_tool_use"), ...call })

const ToolResult = Schema.Struct({
  type: Schema.Literal("tool_result"),
  tool_use_id: Schema.NonEmptyString,
  content: absentable(
    Schema.Union([Schema.String, Schema.Array(Schema.Union([Text, ImageBlock, otherThan("text", "image")]))])
  ),
  is_error: absentable(Schema.Boolean)
})

const Found = Schema.Struct({ title: absentable(Schema.String), url: absentable(Schema.String) })

const WebSearchResult = Schema.Struct({
  type: Schema.Literal("web_search_tool_result"),
  tool_use_id: Schema.NonEmptyString,
  content: Schema.Union([Schema.Array(Found), Schema.JsonObject])
})

const Block = Schema.Union([
  Text,
  ImageBlock,
  Thinking,
  ToolUse,
  ServerToolUse,
  ToolResult,
  WebSearchResult,
  otherThan(
    "text",
    "image",
    "thinking",
    "tool_use",
    "server_tool_use",
    "tool_result",
    "web_search_tool_result"
  )
])

export const Message = Schema.Struct({
  role: Schema.Literals(["user", "assistant", "system"]),
  content: Schema.Union([Schema.String, Schema.Array(Block)])
})

export type Message = typeof Message.Type

/** The system prompt. Only its texts are read. */
export const System = Schema.Union([Schema.String, Schema.Array(Schema.Union([Text, otherThan("text")]))])

/**
 * The line that Claude Code puts before its system prompt. It differs between conversations, or between requests, so with it the
 * model server would read the whole prompt again each time.
 */
const billingLine = /^x-anthropic-billing-header:[^\n]*\n?/

/** The texts of a system prompt, joined without anything between them, as Ollama joins them. */
const systemText = (system: Message["content"] | typeof System.Type): string =>
  (typeof system === "string" ? [system] : system.flatMap((block) => ("text" in block ? [block.text] : [])))
    .map((text) => text.replace(billingLine, ""))
    .join("")

type Result = typeof ToolResult.Type | typeof WebSearchResult.Type

/** Text and images of the result of a tool. Pages that were found are a list of their titles and addresses. */
const resultOf = (result: Result): { readonly text: string; readonly images: ReadonlyArray<string> } => {
  const content = result.content ?? ""
  if (typeof content === "string") return { text: content, images: [] }
  if (!isList(content)) return { text: "the search failed", images: [] }
  const texts = content.map((block) => {
    if ("text" in block) return block.text
    return "url" in block ? `- ${block.title ?? ""}: ${block.url ?? ""}\n` : ""
  })
  return {
    text: texts.join(""),
    images: content.flatMap((block) => ("source" in block ? [block.source.data] : []))
  }
}

const isList: (content: unknown) => content is ReadonlyArray<unknown> = Array.isArray

/** What one message of the client becomes: results of tools, and a message of its own. */
class Translation {
  /** the names of the tools that were called so far, by the ids of the calls */
  readonly #names: Map<string, string>
  #text = ""
  #thinking = ""
  readonly #images: Array<string> = []
  readonly #calls: Array<JsonObject> = []
  readonly #results: Array<JsonObject> = []

  constructor(names: Map<string, string>) {
    this.#names = names
  }

  add(block: typeof Block.Type): void {
    if ("text" in block) this.#text += block.text
    else if ("source" in block) this.#images.push(block.source.data)
    else if ("thinking" in block) this.#thinking += block.thinking
    else if ("tool_use_id" in block) this.#addResult(block)
    else if ("id" in block) {
      this.#names.set(block.id, block.name)
      this.#calls.push({ id: block.id, function: { name: block.name, arguments: block.input ?? {} } })
    }
  }

  #addResult(result: Result): void {
    const { images, text } = resultOf(result)
    const failed = result.type === "tool_result" && result.is_error === true
    this.#results.push({
      role: "tool",
      content: failed ? `Error: ${text}` : text,
      ...present({
        images: listed(images),
        tool_call_id: result.tool_use_id,
        tool_name: this.#names.get(result.tool_use_id)
      })
    })
  }

  /** The results of a user come before the user's own text, because they belong to the calls before it. */
  messages(role: Message["role"]): ReadonlyArray<JsonObject> {
    const fields = present({
      thinking: this.#thinking === "" ? undefined : this.#thinking,
      images: listed(this.#images),
      tool_calls: listed(this.#calls)
    })
    const isEmpty = this.#text === "" && Object.keys(fields).length === 0
    const own = isEmpty ? [] : [{ role, content: this.#text, ...fields }]
    return role === "user" ? [...this.#results, ...own] : [...own, ...this.#results]
  }
}

const listed = <A>(list: ReadonlyArray<A>): ReadonlyArray<A> | undefined =>
  list.length === 0 ? undefined : list

/** The messages for the model server. One of which nothing is left is dropped. */
export const nativeMessages = (
  system: typeof System.Type | null | undefined,
  messages: ReadonlyArray<Message>
): Decided<ReadonlyArray<JsonObject>> => {
  const names = new Map<string, string>()
  const conversation = messages.flatMap(({ content, role }) => {
    if (role === "system") return systemMessage(content)
    const translation = new Translation(names)
    for (const block of typeof content === "string" ? [{ type: "text" as const, text: content }] : content)
      translation.add(block)
    return translation.messages(role)
  })
  // Without a message the model server would only load the model.
  return conversation.length === 0
    ? refuse("messages: expected one with content")
    : Result.succeed([...systemMessage(system ?? ""), ...conversation])
}

const systemMessage = (system: Message["content"] | typeof System.Type): ReadonlyArray<JsonObject> => {
  const content = systemText(system)
  return content === "" ? [] : [{ role: "system", content }]
}
