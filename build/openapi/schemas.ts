/** The schemas of `openapi.json`: Effect turns those of the code into JSON Schema. */
import { Array, JsonSchema, Schema, SchemaRepresentation } from "effect"
import type { JsonObject } from "../../src/domain/Inference.ts"
import { Message as NativeMessage, Tool } from "../../src/http/dialect/native/chatRequest.ts"
import { Options } from "../../src/http/dialect/native/fields.ts"
import { Message } from "../../src/http/dialect/openai/messages.ts"
import { routes } from "../../src/http/routes.ts"
import * as Answers from "./answers.ts"
import { ErrorBody, MessagesErrorBody } from "./errors.ts"
import { operationFor } from "./operations.ts"
import { simplified } from "./simplified.ts"

/** Keys of JSON Schema that a schema may be annotated with, for what its checks cannot say. */
const annotated = new Set(["additionalProperties", "anyOf", "maximum", "not", "type"])

const { Response, Text: _text, ...answers } = Answers

/** Named schemas: all requests and answers, and those used twice. */
const named: Array.NonEmptyReadonlyArray<readonly [name: string, schema: Schema.Top]> = [
  ["Error", ErrorBody],
  ["MessagesError", MessagesErrorBody],
  ["NativeMessage", NativeMessage],
  ["Message", Message],
  ["Tool", Tool],
  ["Options", Options],
  ...routes.flatMap((route) => {
    const { request } = operationFor(route)
    return "dialect" in route && request !== undefined ? [[request, route.dialect.accepts] as const] : []
  }),
  // Libraries of HTTP have a Response of their own.
  ["ResponseResource", Response],
  ...Object.entries(answers)
]

const namesByAst = new Map(named.map(([name, { ast }]) => [ast, name]))

const definitions = (): JsonSchema.Definitions => {
  const representations = SchemaRepresentation.toRepresentations(
    Array.map(named, ([, { ast }]) => ast),
    {
      referencePolicy: ({ ast }) => namesByAst.get(ast)
    }
  )
  return JsonSchema.toMultiDocumentOpenApi3_1(
    SchemaRepresentation.toJsonSchemaMultiDocument(representations, {
      includeAnnotationKey: (key) => annotated.has(key)
    })
  ).definitions
}

export const schemaOf = (schema: Schema.Top): JsonObject => {
  const name = namesByAst.get(schema.ast)
  return name === undefined ? { type: "string" } : { $ref: `#/components/schemas/${name}` }
}

/** All named schemas, sorted by name. */
export const componentSchemas = (): JsonObject =>
  simplified(Schema.decodeUnknownSync(Schema.JsonObject)(definitions()))
