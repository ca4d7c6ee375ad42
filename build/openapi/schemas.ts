/** The schemas of `openapi.json`: Effect turns those of the code into JSON Schema. */
import { JsonSchema, type Schema, SchemaRepresentation } from "effect"
import type { Json, JsonObject } from "../../src/domain/Inference.ts"
import { Message as NativeMessage, Tool } from "../../src/http/dialect/native/chatRequest.ts"
import { Options } from "../../src/http/dialect/native/fields.ts"
import { Message } from "../../src/http/dialect/openai/messages.ts"
import { routes } from "../../src/http/routes.ts"
import * as Answers from "./answers.ts"
import { ErrorBody, MessagesErrorBody } from "./errors.ts"
import { operationFor } from "./operations.ts"

/** Keys of JSON Schema that a schema may be annotated with, for what its checks cannot say. */
const annotated = new Set(["additionalProperties", "anyOf", "maxLength", "maximum", "not"])

const { Text: _text, ...answers } = Answers

/** Named schemas: all requests and answers, and those used twice. */
const named: ReadonlyArray<readonly [name: string, schema: Schema.Top]> = [
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
  ...Object.entries(answers)
]

const namesByAst = new Map(named.map(([name, { ast }]) => [ast, name]))

const definitions = (): JsonSchema.Definitions => {
  const [first, ...rest] = named.map(([, { ast }]) => ast)
  if (first === undefined) return {}
  const representations = SchemaRepresentation.toRepresentations([first, ...rest], {
    referencePolicy: ({ ast }) => namesByAst.get(ast)
  })
  return JsonSchema.toMultiDocumentOpenApi3_1(
    SchemaRepresentation.toJsonSchemaMultiDocument(representations, {
      includeAnnotationKey: (key) => annotated.has(key)
    })
  ).definitions
}

const isObject = (value: unknown): value is { readonly [key: string]: unknown } =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** Schemas of one type without `enum` and `allOf`, so that `null` can be added as a second type. */
const isPlain = (value: unknown): value is { readonly type: string } =>
  isObject(value) && typeof value["type"] === "string" && !("enum" in value) && !("allOf" in value)

/** The same schema, shorter: `null` as a second type, and without redundant keywords. */
const shortened = (value: unknown): Json => {
  if (Array.isArray(value)) return value.map(shortened)
  if (!isObject(value))
    return typeof value === "string" || typeof value === "number" || typeof value === "boolean" ? value : null
  const { anyOf, ...rest } = value
  const [first, second] = Array.isArray(anyOf) && anyOf.length === 2 ? anyOf : []
  const nullable = isPlain(first) && isPlain(second) && second.type === "null"
  // A list of at least one, as Effect writes it.
  const repeated = JSON.stringify(value["prefixItems"]) === JSON.stringify([value["items"]])
  const schema = nullable ? { ...first, type: [first.type, "null"], ...rest } : value
  return Object.fromEntries(
    Object.entries(schema)
      .filter(
        ([key, inner]) =>
          !(key === "additionalProperties" && inner === true) && !(repeated && key === "prefixItems")
      )
      .map(([key, inner]) => [key, shortened(inner)])
  )
}

export const schemaOf = (schema: Schema.Top): JsonObject => {
  const name = namesByAst.get(schema.ast)
  return name === undefined ? { type: "string" } : { $ref: `#/components/schemas/${name}` }
}

/** All named schemas, sorted by name. */
export const componentSchemas = (): JsonObject =>
  Object.fromEntries(
    Object.entries(definitions())
      .toSorted(([one], [other]) => (one < other ? -1 : 1))
      .map(([name, schema]) => [name, shortened(schema)])
  )
