/** What becomes of each type of part, block, item and tool, as the schemas of the surfaces have it. */
import { SchemaAST, type Schema } from "effect"
import { type Fate, fateOf } from "../../src/http/dialect/types.ts"
import * as blocks from "../../src/http/dialect/messages/blocks.ts"
import * as messagesTools from "../../src/http/dialect/messages/tools.ts"
import * as chat from "../../src/http/dialect/openai/chatRequest.ts"
import { Part, ToolCall } from "../../src/http/dialect/openai/messages.ts"
import * as input from "../../src/http/dialect/responses/input.ts"
import { Format } from "../../src/http/dialect/responses/request.ts"
import * as responsesTools from "../../src/http/dialect/responses/tools.ts"

export interface Place {
  readonly path: string
  /** where objects of the types stand */
  readonly where: string
  readonly schema: Schema.Top
}

const on = (path: string, places: { readonly [where: string]: Schema.Top }): ReadonlyArray<Place> =>
  Object.entries(places).map(([where, schema]) => ({ path, where, schema }))

export const places: ReadonlyArray<Place> = [
  ...on("/v1/chat/completions", {
    "parts of `content`": Part,
    "`tool_calls`": ToolCall,
    "`tools`": chat.ListedTool,
    "`tool_choice`": chat.ToolChoice,
    "`response_format`": chat.ResponseFormat
  }),
  ...on("/v1/responses", {
    "items of `input`": input.Item,
    "parts of `content` and `output`": input.Part,
    "`tools`": responsesTools.ListedTool,
    "tools of a `namespace`": responsesTools.Member,
    "`tool_choice`": responsesTools.ToolChoice,
    "`text.format`": Format
  }),
  ...on("/v1/messages", {
    "blocks of `content`": blocks.Block,
    "blocks of a `tool_result`": blocks.ResultBlock,
    "`source` of a `document`": blocks.DocumentSource,
    "`source` of an `image`": blocks.ImageSource,
    "`tools`": messagesTools.Tool,
    "`tool_choice`": messagesTools.ToolChoice
  })
]

/** A member of a place: its types, and what becomes of them. */
export interface Member {
  readonly types: ReadonlyArray<string>
  readonly ast: SchemaAST.AST
  readonly fate: Fate | undefined
}

const literals = (ast: SchemaAST.AST): ReadonlyArray<string> => {
  if (ast._tag === "Union") return ast.types.flatMap(literals)
  if (ast._tag === "Literal") return [String(ast.literal)]
  const expected = SchemaAST.resolve(ast)?.["expected"]
  return typeof expected === "string" ? [expected] : []
}

export const membersOf = (ast: SchemaAST.AST): ReadonlyArray<Member> => {
  if (ast._tag === "Union") return ast.types.flatMap(membersOf)
  const type = ast._tag === "Objects" ? ast.propertySignatures.find(({ name }) => name === "type") : undefined
  return type === undefined ? [] : [{ types: literals(type.type), ast, fate: fateOf(ast) }]
}

export const becomes = (fate: Fate | undefined): string =>
  fate === undefined ? "read" : fate.is === "refused" ? `400: ${fate.why}` : `left out: ${fate.why}`

/** A row for each place and each thing that becomes of a type there. */
export const typeRows = (): ReadonlyArray<ReadonlyArray<string>> =>
  places.flatMap(({ path, schema, where }) => {
    const byFate = Map.groupBy(membersOf(schema.ast), ({ fate }) => becomes(fate))
    return [...byFate].map(([what, members]) => [
      `\`${path}\``,
      where,
      members.flatMap(({ types }) => types.map((type) => `\`${type}\``)).join(", "),
      what
    ])
  })
