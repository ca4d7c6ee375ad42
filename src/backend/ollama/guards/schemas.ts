/**
 * JSON schemas. Ollama turns one into a grammar: some schemas end its runner, and many of common clients it answers with a 400 or
 * a 500. So each schema is written anew in a subset that Ollama can use.
 *
 * A keyword that only narrows the answer, and that Ollama cannot use, is left out and reported. A schema that nothing can
 * match, or that would have another meaning without the keyword, is refused. A `$ref` is replaced by its target; where one
 * refers to itself, everything of its type is allowed. docs/protocol.md has the table ("Schemas"). Shown by
 * `real/survival.real.ts` (schemas by name) and `real/schemas.real.ts` (random schemas, and those of clients).
 */
import { Result } from "effect"
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import { isArray, isCount, isObject, present } from "../../../domain/json.ts"
import type { AdmittedSchema } from "../../Guards.ts"
import {
  anything,
  ignored,
  impliedType,
  isFilled,
  isType,
  lengthOf,
  patternOf,
  resolve,
  schemaBounds,
  typeOf,
  types,
  withoutAnnotations
} from "./jsonSchema.ts"

/** The rules that every grammar may have. */
const builtinRules = 2048

/** The schema for Ollama, or a sentence about why there is none. `at`: the field of the request that has the schema. */
export const admitSchema = (schema: JsonObject, at: string): Result.Result<AdmittedSchema, string> => {
  const admission = new Admission(schema, at)
  // To Ollama an empty schema is any object.
  const empty = Object.keys(schema).length === 0
  const admitted = empty ? { type: "object" } : admission.visit(schema, at, "", 1)
  return admission.problem === undefined
    ? Result.succeed({ schema: admitted, relaxed: [...admission.relaxed].sort() })
    : Result.fail(admission.problem)
}

/** Keywords that change the meaning of a schema, so they cannot be left out. */
const refused = ["not", "if", "then", "else", "dependentSchemas"] as const

const knownFormat = /^(?:uuid[1-5]?|date|time|date-time)$/

/** Ollama takes a key `$ref` as a reference wherever it stands, and reads no half of a surrogate pair. */
const isUsable = (value: Json): boolean => !/"\$ref"|\\ud/.test(JSON.stringify(value))

/**
 * Visits a schema from its root. Keywords are read in the order of Ollama's converter, which reads one kind only. `at` is the
 * place of a subschema in the words of the client, `path` is the name of its rule.
 */
class Admission {
  problem: string | undefined
  readonly relaxed = new Set<string>()
  #subschemas = 0
  #repetitions = 0
  #grammar = builtinRules
  readonly #root: JsonObject
  readonly #at: string
  /** references that are being replaced, to find cycles */
  readonly #open = new Set<string>()

  constructor(root: JsonObject, at: string) {
    this.#root = root
    this.#at = at
  }

  #refuse(at: string, what: string): JsonObject {
    this.problem ??= `${at}: ${what}`
    return {}
  }

  #grow(characters: number): void {
    this.#grammar += characters
    if (this.#grammar > schemaBounds.grammar)
      this.#refuse(this.#at, "expected a smaller schema, or shorter names in it")
  }

  /** Whether a schema has few keywords and short lists. A reference makes them be read again without growing the grammar. */
  #isShort(schema: JsonObject, at: string): boolean {
    const { keywords, listed } = schemaBounds
    if (Object.keys(schema).length > keywords)
      this.#refuse(at, `expected at most ${keywords} keywords in one schema`)
    else if (Object.values(withoutAnnotations(schema)).some((value) => lengthOf(value) > listed))
      this.#refuse(at, `expected at most ${listed} names or values in one list`)
    return this.problem === undefined
  }

  /** What a reference leads to; undefined: nothing. */
  #target(reference: string): Json | undefined {
    return reference.length <= schemaBounds.referenceLength ? resolve(this.#root, reference) : undefined
  }

  #repeat(times: number): void {
    this.#repetitions += times
    if (this.#repetitions > schemaBounds.allRepetitions)
      this.#refuse(
        this.#at,
        `expected at most ${schemaBounds.allRepetitions} repetitions in all of its lengths and patterns`
      )
  }

  #leaveOut(schema: JsonObject, ...keywords: ReadonlyArray<string>): void {
    for (const keyword of keywords) if (schema[keyword] !== undefined) this.relaxed.add(keyword)
  }

  visit(schema: Json | undefined, at: string, path: string, depth: number): JsonObject {
    this.#subschemas += 1
    if (this.#subschemas > schemaBounds.subschemas)
      this.#refuse(this.#at, `expected at most ${schemaBounds.subschemas} subschemas`)
    if (depth > schemaBounds.depth)
      this.#refuse(this.#at, `expected at most ${schemaBounds.depth} levels of subschemas`)
    // Another rule names it.
    this.#grow(16 + path.length)
    if (this.problem !== undefined) return {}
    const admitted = this.#admit(schema, at, path, depth)
    // Types but `object` have a rule already.
    const { type } = admitted
    if (type === undefined || type === "object" || Object.keys(admitted).length > 1)
      this.#grow(80 + path.length)
    if (admitted === anything) this.#grow(32 + 2 * path.length)
    return admitted
  }

  #admit(schema: Json | undefined, at: string, path: string, depth: number): JsonObject {
    if (schema === true) return anything
    if (!isObject(schema)) return this.#refuse(at, "expected a schema that something can match")
    if (!this.#isShort(schema, at)) return {}
    for (const keyword of refused)
      if (schema[keyword] !== undefined) return this.#refuse(`${at}.${keyword}`, "not supported")
    this.#leaveOut(schema, ...ignored)

    const { allOf, anyOf, const: constant, enum: values, oneOf, $ref: reference } = schema
    if (reference !== undefined) return this.#reference(schema, reference, at, path, depth)
    if (isArray(allOf)) return this.#allOf(schema, allOf, at, path, depth)
    const [keyword, union] = anyOf === undefined ? ["oneOf", oneOf] : ["anyOf", anyOf]
    if (union !== undefined) {
      if (!isFilled(union)) return this.#refuse(`${at}.${keyword}`, "expected one schema or more")
      // Beside properties or items it only narrows them, and Ollama would read nothing else.
      if (schema["properties"] === undefined && schema["items"] === undefined)
        return this.#union(union, `${at}.${keyword}`, path, depth)
      this.relaxed.add(keyword)
    }
    if (constant !== undefined) return this.#values([constant], "const", { const: constant })
    if (values !== undefined) {
      if (!isFilled(values)) return this.#refuse(`${at}.enum`, "expected one value or more")
      return this.#values(values, "enum", { enum: values })
    }
    return this.#typed(schema, at, path, depth)
  }

  #typed(schema: JsonObject, at: string, path: string, depth: number): JsonObject {
    const { type } = schema
    if (isArray(type)) {
      if (type.length > types.length || !type.every(isType))
        return this.#refuse(`${at}.type`, "expected types of JSON")
      const alternatives = type.map((one) => ({ ...schema, type: one }))
      const [first, second] = alternatives
      if (first === undefined) return this.#refuse(`${at}.type`, "expected types of JSON")
      return second === undefined
        ? this.#typed(first, at, path, depth)
        : this.#union(alternatives, `${at}.type`, path, depth)
    }
    if (type !== undefined && !isType(type)) return this.#refuse(`${at}.type`, "expected a type of JSON")
    switch (type ?? impliedType(schema)) {
      case "object":
        return this.#object(schema, at, path, depth)
      case "array":
        return this.#array(schema, at, path, depth)
      case "string":
        return this.#string(schema, at, path)
      case "integer":
        return this.#integer(schema, at)
      case "number":
        this.#leaveOut(schema, "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        return { type: "number" }
      case "boolean":
        return { type: "boolean" }
      case "null":
        return { type: "null" }
      case undefined:
        return anything
    }
  }

  #reference(schema: JsonObject, reference: Json, at: string, path: string, depth: number): JsonObject {
    if (typeof reference !== "string" || !/^#(?:$|\/)/.test(reference))
      return this.#refuse(`${at}.$ref`, "expected a reference inside of this schema, like #/$defs/name")
    const target = this.#target(reference)
    if (target === undefined)
      return this.#refuse(`${at}.$ref`, "expected a reference to something in this schema")
    if (this.#open.has(reference)) {
      this.relaxed.add("$ref")
      const type = isObject(target) ? (target["type"] ?? impliedType(target)) : undefined
      return isType(type) ? { type } : anything
    }
    this.#open.add(reference)
    // Keywords beside a reference apply too.
    const { $ref: _reference, ...beside } = withoutAnnotations(schema)
    const merged = isObject(target) ? { ...target, ...beside } : target
    const visited = this.visit(merged, at, path, depth + 1)
    this.#open.delete(reference)
    return visited
  }

  /** Merges schemas of objects into one. */
  #allOf(schema: JsonObject, all: ReadonlyArray<Json>, at: string, path: string, depth: number): JsonObject {
    if (all.length > schemaBounds.merged)
      return this.#refuse(`${at}.allOf`, `expected at most ${schemaBounds.merged} schemas`)
    const { allOf: _all, ...rest } = schema
    const resolved = [...all.map((part) => this.#resolved(part)), rest]
    if (!resolved.every((part) => !isObject(part) || this.#isShort(part, at))) return {}
    const parts = resolved.filter(
      (part) => !isObject(part) || Object.keys(withoutAnnotations(part)).length > 0
    )
    const [first, second] = parts
    // One schema alone, as some clients wrap a reference.
    if (second === undefined) return this.visit(first ?? true, at, path, depth + 1)
    const objects = parts.filter(isObject)
    const isMergeable = ({ allOf, anyOf, oneOf, type = "object" }: JsonObject) =>
      type === "object" && allOf === undefined && anyOf === undefined && oneOf === undefined
    if (objects.length < parts.length || !objects.every(isMergeable))
      return this.#refuse(`${at}.allOf`, "expected schemas of objects")
    const entries = objects.flatMap(({ properties = null }) =>
      isObject(properties) ? Object.entries(properties) : []
    )
    const properties = Object.fromEntries(entries)
    if (Object.keys(properties).length < entries.length)
      return this.#refuse(`${at}.allOf`, "expected each property in one of the schemas")
    const required = objects.flatMap(({ required: names = null }) => (isArray(names) ? names : []))
    return this.visit({ type: "object", properties, required }, at, path, depth + 1)
  }

  /** The target of a schema that is only a reference. */
  #resolved(schema: Json): Json {
    const reference = isObject(schema) ? schema["$ref"] : undefined
    return typeof reference === "string" && !this.#open.has(reference)
      ? (this.#target(reference) ?? schema)
      : schema
  }

  #union(members: ReadonlyArray<Json>, at: string, path: string, depth: number): JsonObject {
    const prefix = path === "" ? "alternative-" : `${path}-`
    return { anyOf: members.map((member, i) => this.visit(member, `${at}.${i}`, `${prefix}${i}`, depth + 1)) }
  }

  #values(values: ReadonlyArray<Json>, keyword: string, kept: JsonObject): JsonObject {
    for (const value of values) this.#grow(8 + 2 * Buffer.byteLength(JSON.stringify(value)))
    if (values.every(isUsable)) return kept
    this.relaxed.add(keyword)
    return { anyOf: [...new Set(values.map(typeOf))].map((type) => ({ type })) }
  }

  #object(schema: JsonObject, at: string, path: string, depth: number): JsonObject {
    const { additionalProperties: extra, properties: given = {}, required: asked = [] } = schema
    if (!isObject(given)) return this.#refuse(`${at}.properties`, "expected an object")
    if (!isArray(asked) || !asked.every((name) => typeof name === "string"))
      return this.#refuse(`${at}.required`, "expected names")
    const inside = path === "" ? "" : `${path}-`
    const names = Object.keys(given)
    if (!names.every(isUsable))
      return this.#refuse(`${at}.properties`, "expected names of well-formed text other than $ref")
    if (names.length === 0) {
      if (extra === undefined || typeof extra === "boolean") return { type: "object" }
      this.#grow(128 + 4 * inside.length)
      const value = this.visit(extra, `${at}.additionalProperties`, `${inside}additional-value`, depth + 1)
      return { type: "object", additionalProperties: value }
    }
    // Ollama adds none either when the schema does not say.
    if (extra !== undefined && extra !== false) this.relaxed.add("additionalProperties")
    const always = new Set(asked)
    const properties = names.map((name): [string, JsonObject] => {
      const rule = inside + name
      this.#grow(48 + 2 * (rule.length + Buffer.byteLength(JSON.stringify(name))))
      if (!always.has(name)) this.#grow(40 + 4 * rule.length)
      return [name, this.visit(given[name], `${at}.properties.${name}`, rule, depth + 1)]
    })
    const required = names.filter((name) => always.has(name))
    return present({
      type: "object",
      properties: Object.fromEntries(properties),
      required: required.length === 0 ? undefined : required
    })
  }

  #array(schema: JsonObject, at: string, path: string, depth: number): JsonObject {
    const { items } = schema
    const inside = path === "" ? "" : `${path}-`
    const tuple = isArray(items) ? items : schema["prefixItems"]
    if (tuple !== undefined) {
      if (!isFilled(tuple)) return this.#refuse(`${at}.prefixItems`, "expected one schema or more")
      this.#leaveOut(schema, "minItems", "maxItems")
      const visited = tuple.map((item, i) =>
        this.visit(item, `${at}.prefixItems.${i}`, `${inside}tuple-${i}`, depth + 1)
      )
      return { type: "array", prefixItems: visited }
    }
    const sizes = this.#sizes(schema, "minItems", "maxItems", at)
    if (items === undefined && Object.keys(sizes).length === 0) return { type: "array" }
    const rule = `${inside}item`
    this.#grow(rule.length)
    return { type: "array", items: this.visit(items ?? true, `${at}.items`, rule, depth + 1), ...sizes }
  }

  #string(schema: JsonObject, at: string, path: string): JsonObject {
    const { format, pattern } = schema
    const kept =
      typeof pattern === "string" && pattern.length <= schemaBounds.patternLength
        ? patternOf(pattern, schemaBounds.repetitions)
        : undefined
    if (kept !== undefined) {
      for (const times of kept.repetitions) this.#repeat(times)
      this.#grow(2 * Buffer.byteLength(kept.text) + kept.repetitions.length * (24 + 2 * path.length))
      this.#leaveOut(schema, "minLength", "maxLength", "format")
      return { type: "string", pattern: kept.text }
    }
    if (pattern !== undefined) this.relaxed.add("pattern")
    if (typeof format === "string" && knownFormat.test(format)) {
      this.#leaveOut(schema, "minLength", "maxLength")
      return { type: "string", format }
    }
    if (format !== undefined) this.relaxed.add("format")
    return { type: "string", ...this.#sizes(schema, "minLength", "maxLength", at) }
  }

  /** A minimum that is too large is refused. A maximum that is too large is left out: the answer may only be longer. */
  #sizes(schema: JsonObject, minimum: string, maximum: string, at: string): JsonObject {
    const { repetitions } = schemaBounds
    const [from, to] = [schema[minimum] ?? 0, schema[maximum]]
    if (!isCount(from) || from > repetitions)
      return this.#refuse(`${at}.${minimum}`, `expected a whole number from 0 to ${repetitions}`)
    if (to !== undefined && !isCount(to)) return this.#refuse(`${at}.${maximum}`, "expected a whole number")
    if (to !== undefined && to < from) return this.#refuse(`${at}.${maximum}`, `expected at least ${minimum}`)
    const isKept = to !== undefined && to <= repetitions
    if (to !== undefined && !isKept) this.relaxed.add(maximum)
    this.#repeat(isKept ? to : from)
    return present({ [minimum]: from === 0 ? undefined : from, [maximum]: isKept ? to : undefined })
  }

  #integer(schema: JsonObject, at: string): JsonObject {
    const minimum = this.#integerBound(schema, "minimum", "exclusiveMinimum", 1)
    const maximum = this.#integerBound(schema, "maximum", "exclusiveMaximum", -1)
    if (minimum !== undefined && maximum !== undefined && minimum > maximum)
      return this.#refuse(`${at}.maximum`, "expected at least minimum")
    return present({ type: "integer", minimum, maximum })
  }

  /** The tighter of both bounds, as an inclusive one. A bound with more digits is left out. */
  #integerBound(schema: JsonObject, inclusive: string, exclusive: string, step: 1 | -1): number | undefined {
    const [closed, open] = [schema[inclusive], schema[exclusive]]
    // Upwards a minimum, downwards a maximum: both are rounded to the inside.
    const bounds = [
      ...(typeof closed === "number" ? [Math.ceil(step * closed)] : []),
      ...(typeof open === "number" ? [Math.floor(step * open) + 1] : [])
    ]
    if (bounds.length === 0) return undefined
    const bound = step * Math.max(...bounds)
    const digits = String(Math.abs(bound)).length
    if (digits <= schemaBounds.integerDigits) {
      // The grammar compares digit by digit.
      this.#grow(40 + 12 * digits ** 2)
      return bound === 0 ? 0 : bound
    }
    // The largest safe integer of JavaScript means that there is no bound.
    if (Math.abs(bound) < Number.MAX_SAFE_INTEGER)
      this.relaxed.add(typeof closed === "number" ? inclusive : exclusive)
    return undefined
  }
}
