/** The input of `POST /v1/responses`: a text, or items, as messages of Ollama (docs/protocol.md, "Responses requests"). */
import { Result, Schema } from "effect"
import { decide, type Decided, refuse } from "../../../domain/Errors.ts"
import type { JsonObject } from "../../../domain/Inference.ts"
import { isArray, isObject } from "../../../domain/json.ts"
import { Calls, nativeMessage } from "../conversation.ts"
import { absentable, base64Of, ImageUrl, isFormed, otherThan } from "../fields.ts"
import type { Body } from "../strictJson.ts"
import { argumentsOf } from "../openai/messages.ts"
import { flatName } from "./tools.ts"

const Text = Schema.Struct({
  type: Schema.Literals(["input_text", "output_text", "text", "summary_text", "reasoning_text"]),
  text: Schema.String
})

const Part = Schema.Union([
  Schema.Struct({ type: Schema.Literal("refusal"), refusal: Schema.String }),
  Schema.Struct({ type: Schema.Literal("input_image"), image_url: ImageUrl }),
  Text
])

const Content = Schema.Union([Schema.String, Schema.Array(Part)])

const FunctionCall = Schema.Struct({
  type: Schema.Literal("function_call"),
  call_id: Schema.String,
  name: Schema.String,
  namespace: absentable(Schema.String),
  arguments: absentable(Schema.String, "a JSON object as text")
})

const CustomCall = Schema.Struct({
  type: Schema.Literal("custom_tool_call"),
  call_id: Schema.String,
  name: Schema.String,
  input: Schema.String
})

const output = { call_id: Schema.String, output: Content }
const FunctionOutput = Schema.Struct({ type: Schema.Literal("function_call_output"), ...output })
const CustomOutput = Schema.Struct({ type: Schema.Literal("custom_tool_call_output"), ...output })

const Reasoning = Schema.Struct({
  type: Schema.Literal("reasoning"),
  summary: absentable(Schema.Array(Text)),
  content: absentable(Schema.Array(Text)),
  encrypted_content: absentable(Schema.String, "the text of the reasoning, as answers have it")
})

const ItemReference = Schema.Struct({ type: Schema.Literal("item_reference") })

const Message = Schema.Struct({
  type: absentable(Schema.Literal("message")),
  // A pattern, because a union leaves out the members whose literals differ, and so their messages.
  role: Schema.String.check(
    isFormed(/^(?:system|developer|user|assistant)$/, "system, developer, user or assistant")
  ),
  content: Content
})

/** Items of tools that only OpenAI's servers run. They are history, and are dropped. */
const OtherItem = otherThan(
  "function_call",
  "custom_tool_call",
  "function_call_output",
  "custom_tool_call_output",
  "reasoning",
  "item_reference",
  "message"
)

// The first issue of the first member that fits becomes the message of a 400, so those without a type of their own come last.
const Item = Schema.Union([
  FunctionCall,
  CustomCall,
  FunctionOutput,
  CustomOutput,
  Reasoning,
  ItemReference,
  Message,
  OtherItem
])

/** Items of one request, with those that are dropped. */
export const maxItems = 8192

export const Input = Schema.Union([Schema.String, Schema.Array(Item).check(Schema.isMaxLength(maxItems))])

/** Refuses too many items before the schema looks at any: it tries an item of twelve bytes as several kinds. */
export const boundItems = ({ json }: Body): Decided<void> => {
  const input = isObject(json) ? json["input"] : undefined
  return isArray(input) && input.length > maxItems
    ? refuse(`input: expected at most ${maxItems} items`)
    : Result.void
}

const isOther = Schema.is(OtherItem)

type Parts = ReadonlyArray<typeof Part.Type>

const partsOf = (content: typeof Content.Type): Parts =>
  typeof content === "string" ? [{ type: "text", text: content }] : content

const textOf = (parts: Parts): string =>
  parts.map((part) => ("text" in part ? part.text : "refusal" in part ? part.refusal : "")).join("")

/** The text and the images of a message. */
const contentOf = (content: typeof Content.Type) =>
  typeof content === "string"
    ? { text: content }
    : {
        text: textOf(content),
        images: content.flatMap((part) => ("image_url" in part ? (base64Of(part.image_url) ?? []) : []))
      }

/** The text of the reasoning. OpenAI encrypts `encrypted_content`; here it is a copy of the text, so it comes last. */
const thinkingOf = ({ content, encrypted_content, summary }: typeof Reasoning.Type): string =>
  textOf(content ?? []) || textOf(summary ?? []) || (encrypted_content ?? "")

/** What the assistant thought, said and called. The items of one answer become one message again. */
interface Turn {
  thinking: string
  readonly parts: Array<typeof Part.Type>
  readonly calls: Array<JsonObject>
  /** whether its last item is a message; a message after that begins the next turn */
  spoken: boolean
}

/** Collects the messages of a conversation. */
class History {
  readonly #messages: Array<JsonObject> = []
  #turn: Turn | undefined
  readonly #made = new Calls()

  get messages(): ReadonlyArray<JsonObject> {
    this.#endTurn()
    return this.#messages
  }

  #endTurn(): void {
    if (this.#turn === undefined) return
    const { calls, parts, thinking } = this.#turn
    this.#messages.push(nativeMessage({ role: "assistant", ...contentOf(parts), thinking, calls }))
    this.#turn = undefined
  }

  #openTurn(): Turn {
    return (this.#turn ??= { thinking: "", parts: [], calls: [], spoken: false })
  }

  message(role: string, content: typeof Content.Type): void {
    if (role === "assistant") return this.#say(partsOf(content))
    this.#endTurn()
    this.#messages.push(
      nativeMessage({ role: role === "developer" ? "system" : role, ...contentOf(content) })
    )
  }

  #say(parts: Parts): void {
    if (this.#turn?.spoken === true) this.#endTurn()
    const turn = this.#openTurn()
    turn.parts.push(...parts)
    turn.spoken = true
  }

  think(thinking: string): void {
    const turn = this.#openTurn()
    turn.thinking += thinking
    turn.spoken = false
  }

  call(id: string, name: string, args: JsonObject): void {
    const turn = this.#openTurn()
    turn.calls.push(this.#made.call(id, name, args))
    turn.spoken = false
  }

  answer(id: string, content: typeof Content.Type): void {
    this.#endTurn()
    this.#messages.push(this.#made.result(id, contentOf(content)))
  }
}

const notStored = refuse("input: items are not stored here, so none can be referred to: set store to false")

type OwnItem = Exclude<typeof Item.Type, typeof OtherItem.Type>

const addItem = (history: History, item: OwnItem, index: number): Decided<void> => {
  switch (item.type) {
    case "function_call":
      return Result.map(argumentsOf(item.arguments, `input.${index}.arguments`), (args) =>
        history.call(item.call_id, flatName(item.namespace, item.name), args)
      )
    case "custom_tool_call":
      return Result.succeed(history.call(item.call_id, item.name, { input: item.input }))
    case "function_call_output":
    case "custom_tool_call_output":
      return Result.succeed(history.answer(item.call_id, item.output))
    case "reasoning":
      return Result.succeed(history.think(thinkingOf(item)))
    case "item_reference":
      return notStored
    default:
      return Result.succeed(history.message(item.role, item.content))
  }
}

/** `instructions` come first, as a message of the system. */
export const nativeMessages = decide(function* (
  input: typeof Input.Type,
  instructions: string | null | undefined
) {
  const history = new History()
  if (typeof instructions === "string") history.message("system", instructions)
  if (typeof input === "string") history.message("user", input)
  else for (const [i, item] of input.entries()) if (!isOther(item)) yield* addItem(history, item, i)
  return history.messages.length === 0 ? yield* refuse("input: expected a message") : history.messages
})
