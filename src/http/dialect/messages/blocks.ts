/** Messages of content blocks in the shape of Ollama (docs/protocol.md, "Messages requests"). */
import { Result, Schema } from "effect"
import { type Decided, refuse } from "../../../domain/Errors.ts"
import type { JsonObject } from "../../../domain/Inference.ts"
import { jsonText } from "../../../domain/json.ts"
import { Arguments, type Calls, nativeMessage } from "../conversation.ts"
import { FileData, fileText, lines, notRead } from "../documents.ts"
import { absentable, AnyObject, Image } from "../fields.ts"
import { leftOut, refused } from "../types.ts"
import { Addition, Removal } from "./tools.ts"

const Text = Schema.Struct({ type: Schema.Literal("text"), text: Schema.String })

export const ImageSource = Schema.Union([
  Schema.Struct({ type: Schema.Literal("base64"), data: Image }),
  ...refused("no image is fetched here; send its base64", "url", "file")
])

const ImageBlock = Schema.Struct({ type: Schema.Literal("image"), source: ImageSource })

export const DocumentSource = Schema.Union([
  Schema.Struct({ type: Schema.Literal("text"), data: Schema.String }),
  Schema.Struct({
    type: Schema.Literal("content"),
    content: Schema.Union([Schema.String, Schema.Array(Schema.Union([Text, ImageBlock]))])
  }),
  Schema.Struct({ type: Schema.Literal("base64"), data: FileData }),
  ...refused(notRead, "url", "file")
])

const Document = Schema.Struct({
  type: Schema.Literal("document"),
  source: DocumentSource,
  title: absentable(Schema.String),
  context: absentable(Schema.String)
})

const SearchResult = Schema.Struct({
  type: Schema.Literal("search_result"),
  title: Schema.String,
  source: Schema.String,
  content: Schema.Array(Text)
})

const Reference = Schema.Struct({ type: Schema.Literal("tool_reference"), tool_name: Schema.String })

const BrowserState = Schema.Struct({ type: Schema.Literal("browser_state"), tabs: Schema.Array(AnyObject) })

export const ResultBlock = Schema.Union([Text, ImageBlock, Document, SearchResult, Reference, BrowserState])

const Thinking = Schema.Struct({ type: Schema.Literal("thinking"), thinking: Schema.String })

/** The summary of what was said before it. */
const Compaction = Schema.Struct({
  type: Schema.Literal("compaction"),
  content: Schema.String.annotateKey({
    messageMissingKey: "missing: only Anthropic's servers read an encrypted one; send its text"
  })
})

/** A call of the model; the other two were made by another server, in the history of a conversation. */
const use = <const T extends string>(type: T) =>
  Schema.Struct({
    type: Schema.Literal(type),
    id: Schema.NonEmptyString,
    name: Schema.NonEmptyString,
    input: absentable(Arguments)
  })

const result = <const T extends string>(type: T) =>
  Schema.Struct({
    type: Schema.Literal(type),
    tool_use_id: Schema.NonEmptyString,
    content: absentable(Schema.Union([Schema.String, Schema.Array(ResultBlock)])),
    is_error: absentable(Schema.Boolean)
  })

const WebSearchResult = Schema.Struct({
  type: Schema.Literal("web_search_tool_result"),
  tool_use_id: Schema.NonEmptyString,
  content: Schema.Union([
    Schema.Array(Schema.Struct({ title: absentable(Schema.String), url: absentable(Schema.String) })),
    AnyObject
  ])
})

const WebFetchResult = Schema.Struct({
  type: Schema.Literal("web_fetch_tool_result"),
  tool_use_id: Schema.NonEmptyString,
  content: Schema.Union([
    Schema.Struct({ type: Schema.Literal("web_fetch_result"), url: Schema.String, content: Document }),
    Schema.Struct({ type: Schema.Literal("web_fetch_tool_result_error") })
  ])
})

/** Results of tools that Anthropic's servers run. The model reads what they are made of. */
const otherResults = [
  "code_execution_tool_result",
  "bash_code_execution_tool_result",
  "text_editor_code_execution_tool_result",
  "tool_search_tool_result",
  "advisor_tool_result"
] as const

const otherResult = <const T extends string>(type: T) =>
  Schema.Struct({
    type: Schema.Literal(type),
    tool_use_id: Schema.NonEmptyString,
    content: AnyObject
  })

export const Block = Schema.Union([
  ...ResultBlock.members,
  Thinking,
  Compaction,
  use("tool_use"),
  use("server_tool_use"),
  use("mcp_tool_use"),
  result("tool_result"),
  result("mcp_tool_result"),
  WebSearchResult,
  WebFetchResult,
  ...otherResults.map(otherResult),
  Addition,
  Removal,
  ...leftOut("encrypted for Anthropic's servers; it is thinking", "redacted_thinking"),
  ...leftOut("tells which model answered", "fallback"),
  ...leftOut("only Anthropic's servers call its server", "mcp_tool_listing"),
  ...refused(notRead, "container_upload")
])

export const Message = Schema.Struct({
  role: Schema.Literals(["user", "assistant", "system"]),
  content: Schema.Union([Schema.String, Schema.Array(Block)])
})

type Part = typeof Block.Type

/** Changes of the tools, in their order. */
export const changesIn = (messages: ReadonlyArray<typeof Message.Type>) =>
  messages.flatMap(({ content }) =>
    typeof content === "string"
      ? []
      : content.flatMap((block) =>
          block.type === "tool_addition" || block.type === "tool_removal" ? [block] : []
        )
  )

export const System = Schema.Union([Schema.String, Schema.Array(Text)])

/**
 * The line that Claude Code puts before its system prompt. It differs between conversations, or between requests, so with it the
 * model server would read the whole prompt again each time.
 */
const billingLine = /^x-anthropic-billing-header:[^\n]*\n?/

/** What a model reads. */
interface Shown {
  readonly text: string
  readonly images: ReadonlyArray<string>
}

const onlyText = (text: string): Shown => ({ text, images: [] })

const sourceShown = (source: typeof DocumentSource.Type): Shown => {
  if (source.type === "content") return allShown(source.content)
  return onlyText(source.type === "base64" ? (fileText(source.data) ?? "") : source.data)
}

/** A document or a search result is text with its title before it. */
const shown = (part: Part): Shown => {
  switch (part.type) {
    case "text":
      return onlyText(part.text)
    case "image":
      return { text: "", images: [part.source.data] }
    case "document": {
      const { images, text } = sourceShown(part.source)
      return { text: lines(part.title, part.context, text), images }
    }
    case "search_result":
      return onlyText(lines(part.title, part.source, allShown(part.content).text))
    case "tool_reference":
      return onlyText(lines(part.tool_name))
    case "browser_state":
      return onlyText(lines(jsonText(part.tabs)))
    case "compaction":
      return onlyText(lines(part.content))
    default:
      return onlyText("")
  }
}

const allShown = (parts: string | ReadonlyArray<Part>): Shown => {
  if (typeof parts === "string") return onlyText(parts)
  const all = parts.map(shown)
  return { text: all.map(({ text }) => text).join(""), images: all.flatMap(({ images }) => images) }
}

type Outcome = Extract<Part, { readonly tool_use_id: string }>

const isList: (content: unknown) => content is ReadonlyArray<unknown> = Array.isArray

/** The result of a tool. Pages that were found are a list of their titles and addresses. */
const resultOf = (outcome: Outcome): Shown => {
  switch (outcome.type) {
    case "tool_result":
    case "mcp_tool_result": {
      const { images, text } = allShown(outcome.content ?? "")
      return { text: outcome.is_error === true ? `Error: ${text}` : text, images }
    }
    case "web_search_tool_result":
      return onlyText(
        isList(outcome.content)
          ? outcome.content.map(({ title, url }) => `- ${title ?? ""}: ${url ?? ""}\n`).join("")
          : "the search failed"
      )
    case "web_fetch_tool_result": {
      const { content } = outcome
      if (!("content" in content)) return onlyText("the page could not be fetched")
      const { images, text } = shown(content.content)
      return { text: lines(content.url, text), images }
    }
    default:
      return onlyText(jsonText(outcome.content))
  }
}

/** The names of the tools that a search has found. */
const foundBy = (outcome: Outcome): ReadonlyArray<string> =>
  outcome.type === "tool_result" && isList(outcome.content)
    ? outcome.content.flatMap((part) => (part.type === "tool_reference" ? [part.tool_name] : []))
    : []

/** What one message of the client becomes: results of tools, and a message of its own. */
const translated = (role: string, blocks: ReadonlyArray<Part>, made: Calls) => {
  let [text, thinking] = ["", ""]
  const images: Array<string> = []
  const calls: Array<JsonObject> = []
  const results: Array<JsonObject> = []
  for (const block of blocks) {
    if ("thinking" in block) thinking += block.thinking
    else if ("tool_use_id" in block) {
      for (const name of foundBy(block)) made.mentioned.add(name)
      results.push(made.result(block.tool_use_id, resultOf(block)))
    } else if ("id" in block) calls.push(made.call(block.id, block.name, block.input))
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

const partsOf = (role: string, content: string | ReadonlyArray<Part>): ReadonlyArray<Part> => {
  const parts = typeof content === "string" ? [{ type: "text" as const, text: content }] : content
  return role !== "system"
    ? parts
    : parts.map((part) =>
        part.type === "text" ? { ...part, text: part.text.replace(billingLine, "") } : part
      )
}

/** The messages for the model server. One of which nothing is left is dropped. */
export const nativeMessages = (
  system: typeof System.Type | null | undefined,
  messages: ReadonlyArray<typeof Message.Type>,
  made: Calls
): Decided<ReadonlyArray<JsonObject>> => {
  const say = (role: string, content: string | ReadonlyArray<Part>) =>
    translated(role, partsOf(role, content), made)
  const conversation = messages.flatMap(({ content, role }) => say(role, content))
  // Without a message the model server would only load the model.
  return conversation.length === 0
    ? refuse("messages: expected one with content")
    : Result.succeed([...say("system", system ?? ""), ...conversation])
}
