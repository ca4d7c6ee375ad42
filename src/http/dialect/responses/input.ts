/** The input of `POST /v1/responses`: a text, or items, as messages of Ollama (docs/protocol.md, "Responses requests"). */
import { Result, Schema } from "effect"
import { type Decided, refuse } from "../../../domain/Errors.ts"
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import { isArray, isObject, jsonText } from "../../../domain/json.ts"
import { Arguments, type Calls, nativeMessage } from "../conversation.ts"
import { FileData, fileText, lines } from "../documents.ts"
import { absentable, AnyJson, base64Of, ImageUrl } from "../fields.ts"
import type { Body } from "../strictJson.ts"
import { leftOut, refused } from "../types.ts"
import { flatName, Tools } from "./tools.ts"

const Text = Schema.Struct({
  type: Schema.Literals(["input_text", "output_text", "text", "summary_text", "reasoning_text"]),
  text: Schema.String
})

export const Part = Schema.Union([
  Schema.Struct({ type: Schema.Literal("refusal"), refusal: Schema.String }),
  Schema.Struct({ type: Schema.Literal("input_image"), image_url: ImageUrl }),
  Schema.Struct({
    type: Schema.Literal("input_file"),
    file_data: FileData,
    filename: absentable(Schema.String)
  }),
  Text
])

const Content = Schema.Union([Schema.String, Schema.Array(Part)])

const FunctionCall = Schema.Struct({
  type: Schema.Literal("function_call"),
  call_id: Schema.String,
  name: Schema.String,
  namespace: absentable(Schema.String),
  arguments: absentable(Arguments, "a JSON object as text; other text becomes the argument `input`")
})

const CustomCall = Schema.Struct({
  type: Schema.Literal("custom_tool_call"),
  call_id: Schema.String,
  name: Schema.String,
  namespace: absentable(Schema.String),
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

const Message = Schema.Struct({
  type: absentable(Schema.Literal("message")),
  role: Schema.Literals(["system", "developer", "user", "assistant"]),
  content: Content
})

const withTools = <const T extends string>(type: T) =>
  Schema.Struct({ type: Schema.Literal(type), tools: Tools })
const AdditionalTools = withTools("additional_tools")
const FoundTools = withTools("tool_search_output")

/** History of a tool that is not the client's: whatever its fields are, the model reads them. */
const foreign = <const T extends string>(...types: ReadonlyArray<T>) =>
  types.map((type) =>
    Schema.StructWithRest(Schema.Struct({ type: Schema.Literal(type) }), [
      Schema.Record(Schema.String, AnyJson)
    ])
  )

const leftItems = [
  ...leftOut("what was found is in the items after it", "web_search_call", "tool_search_call"),
  ...leftOut(
    "about servers that only OpenAI's servers call",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response"
  )
]

const noPicture = "it is not read; send its picture as input_image"

// The first issue of the first member that fits becomes the message of a 400, so the one without a type of its own comes last.
export const Item = Schema.Union([
  FunctionCall,
  CustomCall,
  FunctionOutput,
  CustomOutput,
  Reasoning,
  AdditionalTools,
  FoundTools,
  ...foreign(
    "local_shell_call",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "mcp_call",
    "file_search_call",
    "code_interpreter_call",
    "program",
    "program_output"
  ),
  ...leftItems,
  ...refused("items are not stored here, so none can be referred to: set store to false", "item_reference"),
  ...refused("only OpenAI's servers can read it; send the items that it stands for", "compaction"),
  ...refused("nothing is compacted here; send fewer items", "compaction_trigger"),
  ...refused("send `reasoning` and `text` beside `input`", "configuration_update"),
  ...refused(noPicture, "computer_call", "computer_call_output", "image_generation_call"),
  Message
])

/** Items of one request, with those that are left out. */
export const maxItems = 8192

export const Input = Schema.Union([Schema.String, Schema.Array(Item).check(Schema.isMaxLength(maxItems))])

/** Refuses too many items before the schema looks at any: it tries an item of twelve bytes as several kinds. */
export const boundItems = ({ json }: Body): Decided<void> => {
  const input = isObject(json) ? json["input"] : undefined
  return isArray(input) && input.length > maxItems
    ? refuse(`input: expected at most ${maxItems} items`)
    : Result.void
}

type Parts = ReadonlyArray<typeof Part.Type>

const partsOf = (content: typeof Content.Type): Parts =>
  typeof content === "string" ? [{ type: "text", text: content }] : content

const textOfPart = (part: typeof Part.Type): string => {
  if ("text" in part) return part.text
  if ("refusal" in part) return part.refusal
  return "file_data" in part ? lines(part.filename, fileText(part.file_data)) : ""
}

const textOf = (parts: Parts): string => parts.map(textOfPart).join("")

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
  readonly #made: Calls

  constructor(made: Calls) {
    this.#made = made
  }

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

  call(id: string, name: string, args: Parameters<Calls["call"]>[2]): void {
    const turn = this.#openTurn()
    turn.calls.push(this.#made.call(id, name, args))
    turn.spoken = false
  }

  answer(id: string, content: typeof Content.Type): void {
    this.#endTurn()
    this.#messages.push(this.#made.result(id, contentOf(content)))
  }
}

const jsonOf = (value: Json | undefined): string => (typeof value === "string" ? value : jsonText(value))

/** Some calls have their result with them. */
const addForeign = (history: History, item: JsonObject): void => {
  const { call_id, caller: _, id, output, outputs, result, results, status, type, ...args } = item
  const [called, name] = [String(call_id ?? id), String(type)]
  const told = output ?? outputs ?? results ?? result
  if (name.endsWith("_output")) return history.answer(called, jsonOf(told ?? status ?? ""))
  history.call(called, name.replace("_call", ""), args)
  if (told !== undefined) history.answer(called, jsonOf(told))
}

const isLeftOut = Schema.is(Schema.Union(leftItems))

const addItem = (history: History, item: typeof Item.Type): void => {
  if (isLeftOut(item)) return
  switch (item.type) {
    case "function_call":
      return history.call(item.call_id, flatName(item.namespace, item.name), item.arguments)
    case "custom_tool_call":
      return history.call(item.call_id, flatName(item.namespace, item.name), { input: item.input })
    case "function_call_output":
    case "custom_tool_call_output":
      return history.answer(item.call_id, item.output)
    case "reasoning":
      return history.think(thinkingOf(item))
    case "additional_tools":
    case "tool_search_output":
      // They are tools of the request.
      return
    case "message":
    case undefined:
    case null:
      return history.message(item.role, item.content)
    default:
      return addForeign(history, item)
  }
}

/** Tools that the conversation adds to those of the request. */
export const addedTools = (input: typeof Input.Type): typeof Tools.Type =>
  typeof input === "string"
    ? []
    : input.flatMap((item) =>
        item.type === "additional_tools" || item.type === "tool_search_output" ? item.tools : []
      )

/** Whether an item of a body that was decoded is one of those. */
export const addsTools = (item: Json): boolean =>
  isObject(item) && (item["type"] === "additional_tools" || item["type"] === "tool_search_output")

/** `instructions` come first, as a message of the system. */
export const nativeMessages = (
  input: typeof Input.Type,
  instructions: string | null | undefined,
  made: Calls
): Decided<ReadonlyArray<JsonObject>> => {
  const history = new History(made)
  if (typeof instructions === "string") history.message("system", instructions)
  if (typeof input === "string") history.message("user", input)
  else for (const item of input) addItem(history, item)
  const { messages } = history
  return messages.length === 0 ? refuse("input: expected a message") : Result.succeed(messages)
}
