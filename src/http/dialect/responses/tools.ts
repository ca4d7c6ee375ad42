/** The tools of `POST /v1/responses`. Functions become tools; what the model server cannot run is dropped. */
import { Option, Schema } from "effect"
import type { Decided } from "../../../domain/Errors.ts"
import type { Json } from "../../../domain/Inference.ts"
import { absentable, AnyObject, otherThan } from "../fields.ts"
import { chosenTools, functionTool, maxListed } from "../tools.ts"

const FunctionTool = Schema.Struct({
  type: Schema.Literal("function"),
  name: Schema.String,
  description: absentable(Schema.String),
  parameters: absentable(AnyObject, "a JSON schema"),
  strict: absentable(Schema.Boolean, "has no effect")
})

/** Functions under a common name. The model sees each as `<namespace>.<name>`. */
const Namespace = Schema.Struct({
  type: Schema.Literal("namespace"),
  name: Schema.String,
  description: absentable(Schema.String),
  tools: Schema.Array(Schema.Union([FunctionTool, otherThan("function")]))
})

type Listed = ReadonlyArray<{ readonly type: string; readonly tools?: ReadonlyArray<unknown> }>

/** Each tool is read again where calls get their names, and written in several events, also when it is dropped. */
const isShort = Schema.makeFilter(
  (tools: Listed) => tools.reduce((sum, { tools: members = [] }) => sum + 1 + members.length, 0) <= maxListed,
  {
    expected: `at most ${maxListed} tools, with those in namespaces`,
    toJsonSchema: () => ({ maxItems: maxListed })
  }
)

export const Tools = Schema.Array(
  Schema.Union([FunctionTool, Namespace, otherThan("function", "namespace")])
).check(isShort)

export const ToolChoice = Schema.Union([
  Schema.Literals(["none", "auto", "required"]),
  Schema.Struct({ type: Schema.Literal("function"), name: Schema.String }),
  Schema.Struct({
    type: Schema.Literal("allowed_tools"),
    tools: Schema.Array(Schema.Struct({ type: Schema.String, name: absentable(Schema.String) })).check(
      Schema.isMaxLength(maxListed)
    )
  }),
  otherThan("function", "allowed_tools")
])

/** A function with the name that the model sees, and the names that the client uses. */
interface Callable {
  readonly flatName: string
  readonly namespace?: string
  readonly tool: typeof FunctionTool.Type
}

/** The name that the model sees. Some clients repeat the namespace in the name. */
export const flatName = (namespace: string | null | undefined, name: string): string =>
  namespace === undefined || namespace === null || name.startsWith(`${namespace}.`)
    ? name
    : `${namespace}.${name}`

const isFunction = Schema.is(FunctionTool)
const isNamespace = Schema.is(Namespace)

const callables = (tools: typeof Tools.Type): ReadonlyArray<Callable> =>
  tools.flatMap((tool): ReadonlyArray<Callable> => {
    if (isFunction(tool)) return [{ flatName: tool.name, tool }]
    if (!isNamespace(tool)) return []
    return tool.tools
      .filter(isFunction)
      .map((member) => ({ flatName: flatName(tool.name, member.name), namespace: tool.name, tool: member }))
  })

/** The names of the functions that may be called; undefined: all of them. */
const allowedBy = (choice: typeof ToolChoice.Type | null | undefined) => {
  if (choice === undefined || choice === null || typeof choice === "string") return undefined
  if ("name" in choice) return [choice.name]
  return "tools" in choice ? choice.tools.map(({ name }) => name) : undefined
}

export const nativeTools = (
  tools: typeof Tools.Type | null | undefined,
  choice: typeof ToolChoice.Type | null | undefined
): Decided<Json | undefined> =>
  chosenTools(
    (choice === "none" ? [] : callables(tools ?? [])).map(({ flatName: name, tool }) =>
      functionTool({ name, description: tool.description, parameters: tool.parameters })
    ),
    allowedBy(choice),
    "tool_choice: expected the name of a function of tools"
  )

const decodeTools = Schema.decodeUnknownOption(Schema.fromJsonString(Schema.Struct({ tools: Tools })))

/** How a client names the function that the model calls `flatName`. */
export interface ClientName {
  readonly name: string
  readonly namespace?: string
}

/** Translates the names in calls of the model. `echo`: the JSON text with the tools as the client sent them. */
export const clientNames = (echo: string): ((flatName: string) => ClientName) => {
  const names = new Map<string, ClientName>()
  const tools = Option.match(decodeTools(echo), { onNone: () => [], onSome: ({ tools }) => tools })
  for (const { flatName: flat, namespace, tool } of callables(tools))
    if (namespace !== undefined) names.set(flat, { namespace, name: tool.name })
  return (name) => names.get(name) ?? { name }
}
