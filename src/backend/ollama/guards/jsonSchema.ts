/** What JSON Schema says about a schema itself, whoever reads it, and the bounds of a schema. */
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import { isArray, isObject } from "../../../domain/json.ts"

export const types = ["object", "array", "string", "number", "integer", "boolean", "null"] as const
export type Type = (typeof types)[number]

export const isType = (value: Json | undefined): value is Type => types.some((type) => type === value)

/** Any JSON. */
export const anything: JsonObject = {
  anyOf: types.filter((type) => type !== "integer").map((type) => ({ type }))
}

export const isFilled = (value: Json): value is ReadonlyArray<Json> => isArray(value) && value.length > 0

/** Keywords that say nothing about the answer. */
const annotation = /^(?:\$(?:defs|schema|id|comment)|definitions|title|description|default|examples)$/

export const withoutAnnotations = (schema: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(schema).filter(([key]) => !annotation.test(key)))

/** How many names or values an object or a list has. */
export const lengthOf = (value: Json): number =>
  isArray(value) ? value.length : isObject(value) ? Object.keys(value).length : 0

/**
 * Keywords that only narrow an answer and that Ollama does not know. A `pattern` it knows: a group `(?…)` or a quantifier at the
 * beginning ends its main process, `\d` ends its runner, and `.` matches the quote that ends the text.
 */
export const ignored = [
  "contains",
  "dependentRequired",
  "maxContains",
  "maxProperties",
  "minContains",
  "minProperties",
  "multipleOf",
  "pattern",
  "patternProperties",
  "propertyNames",
  "unevaluatedItems",
  "unevaluatedProperties",
  "uniqueItems"
] as const

/** The type to which the keywords of a schema belong. */
export const impliedType = (schema: JsonObject): Type | undefined => {
  const has = (...keywords: ReadonlyArray<string>) =>
    keywords.some((keyword) => schema[keyword] !== undefined)
  if (has("properties", "additionalProperties", "required")) return "object"
  if (has("items", "prefixItems")) return "array"
  return has("pattern", "format", "minLength", "maxLength") ? "string" : undefined
}

export const typeOf = (value: Json): Type => {
  if (value === null) return "null"
  if (isArray(value)) return "array"
  if (typeof value === "object") return "object"
  return typeof value === "string" ? "string" : typeof value === "number" ? "number" : "boolean"
}

/** What a JSON pointer refers to. */
export const resolve = (root: JsonObject, reference: string): Json | undefined => {
  let target: Json | undefined = root
  for (const token of reference.split("/").slice(1)) {
    const key: string = token.replaceAll("~1", "/").replaceAll("~0", "~")
    if (isArray(target)) target = /^\d{1,4}$/.test(key) ? target[Number(key)] : undefined
    else if (isObject(target) && Object.hasOwn(target, key)) target = target[key]
    else return undefined
  }
  return target
}

/** Bounds of a schema and of its grammar. docs/protocol.md has the same table. */
export const schemaBounds = {
  /** subschemas, after `$ref`s are replaced */
  subschemas: 500,
  /** subschemas inside each other */
  depth: 32,
  /** names of `properties` or `required`, values of one `enum`, members of one union or tuple */
  listed: 500,
  /** characters of a `$ref` */
  referenceLength: 512,
  /** keywords of one subschema */
  keywords: 64,
  /** schemas of one `allOf` */
  merged: 32,
  /** `minLength`, `maxLength`, `minItems`, `maxItems` */
  repetitions: 500,
  /** all of those of one schema together */
  allRepetitions: 2000,
  /** digits of `minimum` and `maximum` of an integer */
  integerDigits: 9,
  /**
   * Characters of the grammar. Ollama's buffer has 32,768, and half a grammar ends its runner. Each part of a schema counts
   * with more than Ollama 0.24.0 writes for it. It names a rule by its whole path (`order-lines-item-price`), so long names
   * inside each other count most.
   */
  grammar: 32_000
} as const
