/** The tools of `POST /v1/messages`: those of the client, as the conversation adds and removes them. */
import { Schema } from "effect"
import { type Decided, refuse } from "../../../domain/Errors.ts"
import type { JsonObject } from "../../../domain/Inference.ts"
import type { Calls } from "../conversation.ts"
import { absentable, AnyObject, isFormed } from "../fields.ts"
import { chosenTools, maxListed, offer } from "../tools.ts"
import { leftOut, refusing } from "../types.ts"

const Custom = Schema.Struct({
  type: absentable(Schema.Literal("custom")),
  name: Schema.NonEmptyString,
  description: absentable(Schema.String),
  input_schema: absentable(AnyObject, "a JSON schema"),
  defer_loading: absentable(Schema.Boolean)
})

/** Anthropic dates the types of its tools, and clients send new dates before a gateway knows them. */
const dated = (...families: ReadonlyArray<string>) => {
  const names = families.join("|")
  return Schema.Struct({
    type: Schema.String.check(
      isFormed(new RegExp(`^(?:${names})(?:_\\d{8})?$`), `${families.join(", ")} of a date`)
    ).pipe(Schema.brand("Dated"))
  })
}

const Served = dated(
  "web_search",
  "web_fetch",
  "code_execution",
  "tool_search_tool_bm25",
  "tool_search_tool_regex",
  "advisor"
)

/** A tool of the client, or one that has a type of its own. */
export const Tool = Schema.Union([
  Custom,
  Served.annotate({ leftOut: "only Anthropic's servers run it" }),
  ...leftOut("only Anthropic's servers call its servers", "mcp_toolset"),
  refusing(
    dated("bash", "text_editor", "computer", "memory", "browser_toolset", "computer_toolset"),
    "only Anthropic's models know it; send a tool with a name and an input_schema that does the same"
  )
])

export const ToolChoice = Schema.Struct({
  type: Schema.Literals(["auto", "any", "tool", "none"]),
  name: absentable(Schema.String)
})

const Named = Schema.Struct({ type: Schema.Literal("tool_reference"), name: Schema.String })
const ofServers = leftOut(
  "only Anthropic's servers call its server",
  "mcp_tool_reference",
  "mcp_toolset_reference"
)

export const Addition = Schema.Struct({
  type: Schema.Literal("tool_addition"),
  tool: Schema.Union([
    Named,
    Schema.Struct({ type: Schema.Literal("tool_definition"), definition: Tool }),
    ...ofServers
  ])
})

export const Removal = Schema.Struct({
  type: Schema.Literal("tool_removal"),
  tool: Schema.Union([Named, ...ofServers])
})

type Change = typeof Addition.Type | typeof Removal.Type

interface Asked {
  readonly tools?: ReadonlyArray<typeof Tool.Type> | null | undefined
  readonly tool_choice?: typeof ToolChoice.Type | null | undefined
}

export const nativeTools = (
  { tool_choice: choice, tools }: Asked,
  changes: ReadonlyArray<Change>,
  { mentioned }: Calls,
  toolsMax: number
): Decided<ReadonlyArray<JsonObject> | undefined> => {
  const listed = [...(tools ?? [])]
  const removed = new Set<string>()
  for (const { tool, type } of changes) {
    if ("definition" in tool) listed.push(tool.definition)
    if (!("name" in tool)) continue
    if (type === "tool_removal") removed.add(tool.name)
    else {
      removed.delete(tool.name)
      mentioned.add(tool.name)
    }
  }
  if (listed.length > maxListed) return refuse(`tools: expected at most ${maxListed}`)
  const own = listed.flatMap((tool) => ("name" in tool && !removed.has(tool.name) ? [tool] : []))
  return chosenTools(
    (choice?.type === "none" ? [] : own).map(
      ({ defer_loading, description, input_schema: parameters, name }) =>
        offer({ name, description, parameters }, defer_loading)
    ),
    {
      chosen:
        choice?.type === "tool"
          ? { names: [choice.name], refusal: "tool_choice.name: expected the name of one of tools" }
          : undefined,
      mentioned,
      toolsMax
    }
  )
}
