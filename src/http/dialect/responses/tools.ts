/** The tools of `POST /v1/responses`: functions, and tools of free text as functions with one argument. */
import { Option, Schema } from "effect"
import { type Decided, refuse } from "../../../domain/Errors.ts"
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import { tryParseJson } from "../../../domain/json.ts"
import type { Calls } from "../conversation.ts"
import { absentable, AnyObject } from "../fields.ts"
import { chosenTools, maxListed, offer, type Offer } from "../tools.ts"
import { leftOut, refused } from "../types.ts"

const tool = {
  name: Schema.String,
  description: absentable(Schema.String),
  defer_loading: absentable(Schema.Boolean)
}

const FunctionTool = Schema.Struct({
  type: Schema.Literal("function"),
  ...tool,
  parameters: absentable(AnyObject, "a JSON schema"),
  strict: absentable(Schema.Boolean, "has no effect")
})

/** Its call is a text. The model sees a function with the argument `input`. */
const CustomTool = Schema.Struct({
  type: Schema.Literal("custom"),
  ...tool,
  format: absentable(
    Schema.Struct({
      definition: absentable(Schema.String, "a grammar, which the model reads; nothing enforces it")
    })
  )
})

export const Member = Schema.Union([FunctionTool, CustomTool])

/** Tools under a common name. The model sees each as `<namespace>.<name>`. */
const Namespace = Schema.Struct({
  type: Schema.Literal("namespace"),
  name: Schema.String,
  description: absentable(Schema.String),
  tools: Schema.Array(Member)
})

type Listed = ReadonlyArray<{ readonly type: string; readonly tools?: ReadonlyArray<unknown> }>

const tooMany = `at most ${maxListed} tools, with those in namespaces`

/** Each tool is read again where calls get their names, and written in several events, also when it is left out. */
const isShort = (tools: Listed): boolean =>
  tools.reduce((sum, { tools: members = [] }) => sum + 1 + members.length, 0) <= maxListed

const serverTools = leftOut(
  "only OpenAI's servers run it, and clients list it for every server",
  "web_search",
  "web_search_2025_08_26",
  "web_search_preview",
  "web_search_preview_2025_03_11",
  "file_search",
  "code_interpreter",
  "image_generation",
  "mcp",
  "tool_search",
  "programmatic_tool_calling"
)

export const ListedTool = Schema.Union([
  FunctionTool,
  CustomTool,
  Namespace,
  ...serverTools,
  ...refused(
    "only OpenAI's models know it; send a function that does the same",
    "local_shell",
    "shell",
    "apply_patch",
    "computer",
    "computer_use_preview"
  )
])

export const Tools = Schema.Array(ListedTool).check(
  Schema.makeFilter(isShort, { expected: tooMany, toJsonSchema: () => ({ maxItems: maxListed }) })
)

export const ToolChoice = Schema.Union([
  Schema.Literals(["none", "auto", "required"]),
  Schema.Struct({ type: Schema.Literal("function"), name: Schema.String }),
  Schema.Struct({ type: Schema.Literal("custom"), name: Schema.String }),
  Schema.Struct({
    type: Schema.Literal("allowed_tools"),
    tools: Schema.Array(Schema.Struct({ type: Schema.String, name: absentable(Schema.String) })).check(
      Schema.isMaxLength(maxListed)
    )
  }),
  ...serverTools
])

/** A tool with the name that the model sees, and the names that the client uses. */
interface Callable {
  readonly flatName: string
  readonly namespace?: string
  readonly tool: typeof Member.Type
}

/** The name that the model sees. Some clients repeat the namespace in the name. */
export const flatName = (namespace: string | null | undefined, name: string): string =>
  namespace === undefined || namespace === null || name.startsWith(`${namespace}.`)
    ? name
    : `${namespace}.${name}`

const callables = (tools: typeof Tools.Type): ReadonlyArray<Callable> =>
  tools.flatMap((listed): ReadonlyArray<Callable> => {
    if (listed.type === "function" || listed.type === "custom")
      return [{ flatName: listed.name, tool: listed }]
    if (listed.type !== "namespace") return []
    const { name: namespace, tools: members } = listed
    return members.map((member) => ({ flatName: flatName(namespace, member.name), namespace, tool: member }))
  })

const parametersOf = (member: typeof Member.Type): JsonObject | null | undefined => {
  if (member.type === "function") return member.parameters
  const definition = member.format?.definition
  const description = typeof definition === "string" ? { description: definition } : {}
  return { type: "object", properties: { input: { type: "string", ...description } }, required: ["input"] }
}

const offerOf = ({ flatName: name, tool: member }: Callable): Offer =>
  offer({ name, description: member.description, parameters: parametersOf(member) }, member.defer_loading)

type Choice = typeof ToolChoice.Type | null | undefined

/** The names of the tools that may be called; undefined: all of them. */
const allowedBy = (choice: Choice) => {
  if (choice === undefined || choice === null || typeof choice === "string") return undefined
  if ("name" in choice) return [choice.name]
  return "tools" in choice ? choice.tools.map(({ name }) => name) : undefined
}

export const nativeTools = (
  tools: typeof Tools.Type,
  choice: Choice,
  { mentioned }: Calls,
  toolsMax: number
): Decided<Json | undefined> => {
  if (!isShort(tools)) return refuse(`tools: expected ${tooMany}`)
  const names = allowedBy(choice)
  return chosenTools(choice === "none" ? [] : callables(tools).map(offerOf), {
    chosen: names && { names, refusal: "tool_choice: expected the name of a function of tools" },
    mentioned,
    toolsMax
  })
}

const decodeTools = Schema.decodeUnknownOption(Schema.Struct({ tools: Tools }))

/** How a client names the tool that the model calls by its flat name. */
export interface ClientName {
  readonly name: string
  readonly namespace?: string
}

/** Whose call an item is, and whether it is a text. */
export interface Called {
  readonly name: ClientName
  readonly isCustom: boolean
}

/** Translates the names in calls of the model. `echo`: the JSON text with the tools as the client sent them. */
export const clientNames = (echo: string): ((flatName: string) => Called) => {
  const called = new Map<string, Called>()
  const tools = Option.match(decodeTools(tryParseJson(echo)), {
    onNone: () => [],
    onSome: ({ tools }) => tools
  })
  for (const {
    flatName: flat,
    namespace,
    tool: { name, type }
  } of callables(tools))
    called.set(flat, {
      name: namespace === undefined ? { name: flat } : { namespace, name },
      isCustom: type === "custom"
    })
  return (name) => called.get(name) ?? { name: { name }, isCustom: false }
}
