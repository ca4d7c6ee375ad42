/** The types and keywords of JSON Schema, and which names and values a grammar can contain. */
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import { isArray, isObject } from "../../../domain/json.ts"

export const types = ["object", "array", "string", "number", "integer", "boolean", "null"] as const
export type Type = (typeof types)[number]

export const isType = (value: Json | undefined): value is Type => types.some((type) => type === value)

/** Keywords that change the meaning of a schema, so they cannot be left out. */
export const refused = ["not", "if", "then", "else", "dependentSchemas"] as const

/** Keywords that only narrow an answer and that the model server does not know. */
export const ignored: ReadonlyArray<string> = [
  "contains",
  "dependentRequired",
  "maxContains",
  "maxProperties",
  "minContains",
  "minProperties",
  "multipleOf",
  "patternProperties",
  "propertyNames",
  "unevaluatedItems",
  "unevaluatedProperties",
  "uniqueItems"
]

export const knownFormat = /^(?:uuid[1-5]?|date|time|date-time)$/

/**
 * Whether a value or a name can be part of a grammar. The converter does not escape backslashes or what JSON writes
 * with one, and takes a key `$ref` as a reference everywhere.
 */
export const isPlain = (value: Json): boolean => !/\\|"\$ref"/.test(JSON.stringify(value))

/** Names that a grammar can exclude from the names of other properties, character by character. */
export const simpleName = /^[A-Za-z0-9_]+$/

/** The names of the built-in rules, as the converter spells a property. */
export const ownRule =
  /^(?:boolean|decimal-part|integral-part|number|integer|value|object|array|uuid|char|string|null|date|time|date-time|date-string|time-string|date-time-string|dot|space|root)$/
export const ruleName = (path: string): string => path.replaceAll(/[^A-Za-z0-9-]+/g, "-")

export const withoutDefinitions = (schema: JsonObject): JsonObject =>
  Object.fromEntries(
    Object.entries(schema).filter(
      ([key]) =>
        !/^(?:\$defs|definitions|\$schema|\$id|\$comment|title|description|default|examples)$/.test(key)
    )
  )

/** The type to which the keywords of a schema belong. */
export const impliedType = (schema: JsonObject): Type | undefined => {
  if (schema["properties"] !== undefined || schema["additionalProperties"] !== undefined) return "object"
  if (schema["required"] !== undefined) return "object"
  if (schema["items"] !== undefined || schema["prefixItems"] !== undefined) return "array"
  if (schema["pattern"] !== undefined || schema["format"] !== undefined) return "string"
  if (schema["minLength"] !== undefined || schema["maxLength"] !== undefined) return "string"
  return undefined
}

/** The types of some values: used when the values of an `enum` cannot be written. */
export const typeOf = (values: ReadonlyArray<Json>): JsonObject => {
  const found = new Set(values.map(typeOfOne))
  const [first] = found
  return found.size === 1 && first !== undefined
    ? { type: first }
    : { anyOf: [...found].map((type) => ({ type })) }
}

export const typeOfOne = (value: Json): Type => {
  if (value === null) return "null"
  if (isArray(value)) return "array"
  switch (typeof value) {
    case "string":
      return "string"
    case "number":
      return "number"
    case "boolean":
      return "boolean"
    default:
      return "object"
  }
}

/** Resolves a JSON pointer. */
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
