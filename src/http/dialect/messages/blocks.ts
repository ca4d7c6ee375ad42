/** Messages of content blocks in the shape of Ollama (docs/protocol.md, "Messages requests"). */
import { Result, Schema } from "effect"
import { type Decided, refuse } from "../../../domain/Errors.ts"
import type { JsonObject } from "../../../domain/Inference.ts"
import { Calls, nativeMessage } from "../conversation.ts"
import { absentable, AnyObject, Image, otherThan } from "../fields.ts"

const Text = Schema.Struct({ type: Schema.Literal("text"), text: Schema.String })

const ImageBlock = Schema.Struct({
  type: Schema.Literal("image"),
  source: Schema.Struct({ type: Schema.Literal("base64"), data: Image })
})

const Contents = Schema.Union([Schema.String, Schema.Array(Schema.Union([Text, ImageBlock]))])

const Document = Schema.Struct({
  type: Schema.Literal("document"),
  source: Schema.Union([
    Schema.Struct({ type: Schema.Literal("text"), data: Schema.String }),
    Schema.Struct({ type: Schema.Literal("content"), content: Contents }),
    otherThan("text", "content")
  ]),
  title: absentable(Schema.String),
  context: absentable(Schema.String)
})

const SearchResult = Schema.Struct({
  type: Schema.Literal("search_result"),
  title: Schema.String,
  source: Schema.String,
  content: Schema.Array(Text)
})

const Thinking = Schema.Struct({ type: Schema.Literal("thinking"), thinking: Schema.String })

const call = { id: Schema.NonEmptyString, name: Schema.NonEmptyString, input: absentable(AnyObject) }
const ToolUse = Schema.Struct({ type: Schema.Literal("tool_use"), ...call })
/** A call that another server has made for the client, in the history of a conversation. */
const ServerToolUse = Schema.Struct({ type: Schema.Literal("server_tool_use"), ...call })

const ToolResult = Schema.Struct({
  type: Schema.Literal("tool_result"),
  tool_use_id: Schema.NonEmptyString,
  content: absentable(
    Schema.Union([
      Schema.String,
      Schema.Array(
        Schema.Union([
          Text,
          ImageBlock,
          Document,
          SearchResult,
          otherThan("text", "image", "document", "search_result")
        ])
      )
    ])
  ),
  is_error: absentable(Schema.Boolean)
})

const Found = Schema.Struct({ title: absentable(Schema.String), url: absentable(Schema.String) })

const WebSearchResult = Schema.Struct({
  type: Schema.Literal("web_search_tool_result"),
  tool_use_id: Schema.NonEmptyString,
  content: Schema.Union([Schema.Array(Found), AnyObject])
})

const Block = Schema.Union([
  Text,
  ImageBlock,
  Document,
  SearchResult,
  Thinking,
  ToolUse,
  ServerToolUse,
  ToolResult,
  WebSearchResult,
  otherThan(
    "text",
    "image",
    "document",
    "search_result",
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
type Part = typeof Block.Type

/** What a model reads. */
interface Shown {
  readonly text: string
  readonly images: ReadonlyArray<string>
}

const is =
  <T extends string>(type: T) =>
  (part: Part): part is Extract<Part, { readonly type: T }> =>
    part.type === type
const [isDocument, isImage, isSearchResult] = [is("document"), is("image"), is("search_result")]
const isToolResult = is("tool_result")

/** Lines of their own, because texts are joined without anything between them. */
const lines = (...texts: ReadonlyArray<string | null | undefined>): string =>
  `\n${texts.filter((text) => text !== undefined && text !== null && text !== "").join("\n")}\n`

/** A document or a search result is text with its title before it. */
const shown = (part: Part): Shown => {
  if ("text" in part) return { text: part.text, images: [] }
  if (isImage(part)) return { text: "", images: [part.source.data] }
  if (isSearchResult(part))
    return { text: lines(part.title, part.source, allShown(part.content).text), images: [] }
  if (!isDocument(part)) return { text: "", images: [] }
  const { context, source, title } = part
  const { images, text } = allShown(
    "data" in source ? source.data : "content" in source ? source.content : ""
  )
  return { text: lines(title, context, text), images }
}

const allShown = (parts: string | ReadonlyArray<Part>): Shown => {
  if (typeof parts === "string") return { text: parts, images: [] }
  const all = parts.map(shown)
  return { text: all.map(({ text }) => text).join(""), images: all.flatMap(({ images }) => images) }
}

/** The result of a tool. Pages that were found are a list of their titles and addresses. */
const resultOf = (result: Result): Shown => {
  if (result.type === "web_search_tool_result") {
    return isList(result.content)
      ? {
          text: result.content.map(({ title, url }) => `- ${title ?? ""}: ${url ?? ""}\n`).join(""),
          images: []
        }
      : { text: "the search failed", images: [] }
  }
  const { images, text } = allShown(result.content ?? "")
  return { text: result.is_error === true ? `Error: ${text}` : text, images }
}

/** Whether a part is a file that no model reads: a PDF, an address, or one that another server keeps. */
const isUnreadable = (part: Part): boolean => {
  if (isDocument(part)) return !("data" in part.source || "content" in part.source)
  return isToolResult(part) && isList(part.content) && part.content.some(isUnreadable)
}

const isList: (content: unknown) => content is ReadonlyArray<unknown> = Array.isArray

/** What one message of the client becomes: results of tools, and a message of its own. */
const translated = (role: "user" | "assistant", blocks: ReadonlyArray<typeof Block.Type>, made: Calls) => {
  let [text, thinking] = ["", ""]
  const images: Array<string> = []
  const calls: Array<JsonObject> = []
  const results: Array<JsonObject> = []
  for (const block of blocks) {
    if ("thinking" in block) thinking += block.thinking
    else if ("tool_use_id" in block) results.push(made.result(block.tool_use_id, resultOf(block)))
    else if ("id" in block) calls.push(made.call(block.id, block.name, block.input ?? {}))
    else {
      const part = shown(block)
      text += part.text
      images.push(...part.images)
    }
  }
  const isEmpty = text === "" && thinking === "" && images.length === 0 && calls.length === 0
  const own = isEmpty ? [] : [nativeMessage({ role, text, thinking, images, calls })]
  // The results of a user come before the user's own text, because they belong to the calls before it.
  return role === "user" ? [...results, ...own] : [...own, ...results]
}

/** The messages for the model server. One of which nothing is left is dropped. */
export const nativeMessages = (
  system: typeof System.Type | null | undefined,
  messages: ReadonlyArray<Message>
): Decided<ReadonlyArray<JsonObject>> => {
  if (messages.some(({ content }) => typeof content !== "string" && content.some(isUnreadable)))
    return refuse(
      "messages: expected documents of type text or content: no PDF, address or file is read; send its text, or its pages as images"
    )
  const made = new Calls()
  const conversation = messages.flatMap(({ content, role }) => {
    if (role === "system") return systemMessage(content)
    const blocks = typeof content === "string" ? [{ type: "text" as const, text: content }] : content
    return translated(role, blocks, made)
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
