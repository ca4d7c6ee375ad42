/**
 * Walks the schema of a request and fills it: one body for each place where a text may stand, with that text there and as
 * little as possible, or as much as possible, around it. A field that is added to a schema is found here by itself.
 */
import { Schema, SchemaAST } from "effect"
import type { Json, JsonObject } from "../../src/domain/Inference.ts"
import { picture } from "./pictures.ts"

export interface Filled {
  /** the place of the text, like `messages[].tool_calls[].function.name` */
  readonly path: string
  readonly body: Json
}

/** The same text as the formats that strings of a request can have want it. `text` has letters only, a multiple of 4. */
const forms: ReadonlyArray<(text: string) => string> = [
  (text) => text,
  (text) => JSON.stringify({ k: text }),
  (text) => picture + text,
  (text) => `data:image/png;base64,${picture}${text}`,
  (text) => Buffer.from(text).toString("base64")
]

const accepts = (ast: SchemaAST.AST, value: unknown): boolean => Schema.is(Schema.make(ast))(value)

const isNone = (ast: SchemaAST.AST): boolean => ast._tag === "Null" || ast._tag === "Undefined"

/** Fields that have to be there, or all of them. */
type Extent = "required" | "all"

const nameOf = (property: SchemaAST.PropertySignature): string => String(property.name)

const firsts = new WeakMap<SchemaAST.AST, Json>()

const firstOf = (candidates: ReadonlyArray<Json>, ast: SchemaAST.AST): Json => {
  const known = firsts.get(ast)
  if (known !== undefined) return known
  const first = candidates.find((candidate) => accepts(ast, candidate)) ?? null
  firsts.set(ast, first)
  return first
}

/** A value without the text. */
const plain = (ast: SchemaAST.AST, extent: Extent): Json => {
  switch (ast._tag) {
    case "String":
      return firstOf(
        ["m", picture, `data:image/png;base64,${picture}`, "float", "user", "bQ==", "web_search_20250305"],
        ast
      )
    case "Number":
      return firstOf([1, 0, 64], ast)
    case "Null":
      return null
    case "Boolean":
      return true
    case "Literal":
      return typeof ast.literal === "bigint" ? null : ast.literal
    case "Union": {
      const some = ast.types.find((type) => !isNone(type))
      return some === undefined ? null : plain(some, extent)
    }
    case "Arrays":
      return ast.elements.map((element) => plain(element, extent))
    case "Objects":
      return plainObject(ast, extent)
    case "Suspend":
      return plain(ast.thunk(), extent)
    case "Declaration":
      return accepts(ast, "m") ? "m" : {}
    default:
      return "m"
  }
}

const plainObject = (ast: SchemaAST.Objects, extent: Extent): { [key: string]: Json } =>
  Object.fromEntries(
    ast.propertySignatures
      .filter((property) => extent === "all" || property.type.context?.isOptional !== true)
      .map((property) => [nameOf(property), plain(property.type, extent)])
  )

/** The literals of a property that chooses between kinds of the object: a role, a type. */
const choices = (type: SchemaAST.AST): ReadonlyArray<Json> =>
  type._tag === "Union" && type.types.every((member) => member._tag === "Literal")
    ? type.types.map((member) => plain(member, "required"))
    : []

/** What may stand around `property`: the required fields, all, all but one; in each kind of the object. */
const bases = (ast: SchemaAST.Objects, property: SchemaAST.PropertySignature): ReadonlyArray<JsonObject> => {
  const all = plainObject(ast, "all")
  const others = ast.propertySignatures.filter((other) => other !== property)
  const without = others.map((other) =>
    Object.fromEntries(Object.entries(all).filter(([key]) => key !== nameOf(other)))
  )
  const kinds = others.flatMap((other) =>
    choices(other.type).map((choice) => ({ ...all, [nameOf(other)]: choice }))
  )
  return [all, plainObject(ast, "required"), ...without, ...kinds]
}

/** JSON schemas, of which only what is known passes. */
const schemasWith = (text: string): ReadonlyArray<Json> => [
  { type: "object", properties: { [text]: { type: "string" } } },
  { enum: [text] },
  { type: "string", pattern: `^${text}$` }
]

const anyJson = (text: string, path: string): ReadonlyArray<Filled> => [
  { path, body: text },
  { path: `${path}[]`, body: [text] },
  { path: `${path}[][]`, body: [[text]] },
  { path: `${path}{key}`, body: { [text]: 1 } },
  { path: `${path}{}`, body: { k: { k: text } } }
]

/** `inner`: what may stand under its keys. */
const anyObject = (inner: ReadonlyArray<Filled>, text: string, path: string): ReadonlyArray<Filled> => [
  ...schemasWith(text).map((body) => ({ path: `${path}{schema}`, body })),
  { path: `${path}{key}`, body: { [text]: "m" } },
  ...inner.map((each) => ({ path: each.path, body: { k: each.body } }))
]

const filled = (ast: SchemaAST.AST, text: string, path: string): ReadonlyArray<Filled> => {
  switch (ast._tag) {
    case "String":
      return forms
        .map((form) => form(text))
        .filter((value) => accepts(ast, value))
        .map((body) => ({ path, body }))
    case "Union":
      return ast.types.flatMap((type) => filled(type, text, path))
    case "Arrays":
      return [
        ...ast.elements.flatMap((element, index) =>
          filled(element, text, `${path}[]`).map((item) => ({
            path: item.path,
            body: ast.elements.map((other, i) => (i === index ? item.body : plain(other, "all")))
          }))
        ),
        ...ast.rest.flatMap((element) =>
          filled(element, text, `${path}[]`).map((item) => ({
            path: item.path,
            body: [...ast.elements.map((other) => plain(other, "all")), item.body]
          }))
        )
      ]
    case "Objects":
      return [
        ...ast.propertySignatures.flatMap((property) => {
          const name = nameOf(property)
          const around = bases(ast, property)
          const seen = new Set<string>()
          return filled(property.type, text, path === "" ? name : `${path}.${name}`).flatMap((inner) =>
            // All surroundings for one of the inner bodies of a place, and one for the others: not their product.
            (seen.has(inner.path) ? around.slice(0, 1) : (seen.add(inner.path), around)).map((base) => ({
              path: inner.path,
              body: { ...base, [name]: inner.body }
            }))
          )
        }),
        ...ast.indexSignatures.flatMap((index) =>
          anyObject(filled(index.type, text, `${path}{}`), text, path).map((any) => ({
            path: any.path,
            body: { ...Object(any.body), ...plainObject(ast, "required") }
          }))
        )
      ]
    case "Suspend":
      return filled(ast.thunk(), text, path)
    case "Declaration":
      return accepts(ast, text) ? anyJson(text, path) : anyObject(anyJson(text, `${path}{}`), text, path)
    default:
      return []
  }
}

/** Bodies for every place in `schema` where `text` may stand, several for each place. */
export const bodiesWith = (schema: Schema.Top, text: string): ReadonlyArray<Filled> =>
  filled(schema.ast, text, "")
