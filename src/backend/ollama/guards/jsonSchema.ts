/**
 * What JSON Schema says about a schema itself, whoever reads it; the bounds of a schema; and its patterns.
 *
 * The `pattern` of a text in a schema. Simple ones are kept: characters, `.`, brackets, `\d`, `\w` and escaped signs, each with an
 * optional quantifier, from `^` to `$`. All others are left out.
 *
 * A group `(?…)`, a quantifier at the beginning or `\d` has ended servers, and `.` matches the quote that ends the text. Shown by `real/survival.real.ts` and `real/schemas.real.ts`.
 */

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

/** Keywords that only narrow an answer and that Ollama does not know. */
export const ignored = [
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
  /** characters of a `pattern` that is kept */
  patternLength: 512,
  /** `minLength`, `maxLength`, `minItems`, `maxItems`, and a number in the braces of a `pattern` */
  repetitions: 500,
  /** all of those of one schema together */
  allRepetitions: 2000,
  /** digits of `minimum` and `maximum` of an integer */
  integerDigits: 9,
  /**
   * Characters of the grammar. Ollama's buffer has 32,768, and half a grammar ends its runner. Each part of a schema counts
   * with more than Ollama writes for it. It names a rule by its whole path (`order-lines-item-price`), so long names
   * inside each other count most.
   */
  grammar: 32_000
} as const

/** A text in JSON has none of these as they are. */
const neverInText = String.raw`"\\\x7F\x00-\x1F`

const shorthands: Readonly<Record<string, string>> = { "\\d": "0-9", "\\w": "A-Za-z0-9_" }

/** Shorthands; signs that mean themselves after a backslash or in brackets; ranges; and what means itself everywhere. */
const member =
  /\\[dw/_]|\\?[.*+?(){}|$-]|[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9 _@:/,;!#%&'=~<>\x60\u00a1-\ud7ff\ue000-\ufffd]/guy

/** One character, a dot or brackets, with a quantifier or none. */
const piece =
  /(?:(\\[dw/_.*+?(){}|$-]|-|[A-Za-z0-9 _@:/,;!#%&'=~<>\x60\u00a1-\ud7ff\ue000-\ufffd])|(\.)|\[(\^?)((?:\\.|[^\]\\])+)\])([?*+]|\{(\d{1,4})(?:(,)(\d{0,4}))?\})?/guy

const isDescending = (text: string): boolean => text.length === 3 && text.charCodeAt(0) > text.charCodeAt(2)

/** The members of brackets as a grammar has them; undefined when there is another one. A dash that is first is no range. */
const membersOf = (text: string): string | undefined => {
  const members = [...text.matchAll(member)].map(([found]) => found)
  if (members.join("") !== text || members.some(isDescending)) return undefined
  const written = members.map((one) => shorthands[one] ?? (one.length === 2 ? one.slice(1) : one))
  return (written.includes("-") ? "-" : "") + written.filter((one) => one !== "-").join("")
}

export interface Pattern {
  readonly text: string
  /** how often each piece with braces is repeated */
  readonly repetitions: ReadonlyArray<number>
}

/** The pattern for Ollama; undefined when it is not a simple one, or has a larger number than `most` in braces. */
export const patternOf = (pattern: string, most: number): Pattern | undefined => {
  const inner = /^\^(.*)\$$/s.exec(pattern)?.[1] ?? ""
  const repetitions: Array<number> = []
  let [read, text] = [0, ""]
  for (const [whole, one, dot, not = "", many, quantifier = "", least, comma, to] of inner.matchAll(piece)) {
    read += whole.length
    const members = dot === undefined ? membersOf(one ?? many ?? "") : ""
    if (members === undefined) return undefined
    text += dot !== undefined || not !== "" ? `[^${not === "" ? "" : members}${neverInText}]` : `[${members}]`
    text += quantifier
    if (least === undefined) continue
    const times = Number(comma === undefined || to === "" ? least : to)
    if (times > most || times === 0 || times < Number(least)) return undefined
    repetitions.push(times)
  }
  return inner !== "" && read === inner.length ? { text: `^${text}$`, repetitions } : undefined
}
