/**
 * Rewrites one schema into the subset that is forwarded. It visits the schema from its root and records what was left
 * out. Keywords are read in the order of the model server's converter, which reads one kind only.
 */
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import { isArray, isCount, isObject } from "../../../domain/json.ts"
import { schemaBounds as bounds } from "./bounds.ts"
import {
  ignored,
  impliedType,
  isPlain,
  isType,
  knownFormat,
  ownRule,
  refused,
  resolve,
  ruleName,
  simpleName,
  typeOf,
  types,
  withoutDefinitions
} from "./keywords.ts"
import { safePattern } from "./pattern.ts"

/** Any JSON. */
const anything: JsonObject = {
  anyOf: types.filter((type) => type !== "integer").map((type) => ({ type }))
}

export class Admission {
  problem: string | undefined
  readonly relaxed = new Set<string>()
  /** a property would get the name of a rule of the converter */
  collides = false
  #nodes = 0
  #repetitions = 0
  readonly #root: JsonObject
  readonly #at: string
  /** references that are being resolved, to find cycles */
  readonly #open = new Set<string>()

  /** `at`: the field of the request that has the schema */
  constructor(root: JsonObject, at: string) {
    this.#root = root
    this.#at = at
  }

  #refuse(at: string, what: string): JsonObject {
    this.problem ??= `${at}: ${what}`
    return {}
  }

  visit(schema: Json | undefined, at: string, depth: number, rule: string): JsonObject {
    if (this.problem !== undefined) return {}
    this.#nodes += 1
    if (this.#nodes > bounds.nodes)
      return this.#refuse(this.#at, `expected at most ${bounds.nodes} subschemas`)
    if (depth > bounds.depth)
      return this.#refuse(this.#at, `expected at most ${bounds.depth} levels of subschemas`)
    if (schema === true) return anything
    if (!isObject(schema)) return this.#refuse(at, "expected a schema that something can match")
    if (Object.keys(schema).length > bounds.keywords) {
      return this.#refuse(at, `expected at most ${bounds.keywords} keywords in one schema`)
    }
    const name = ruleName(rule)
    if (name !== rule && ownRule.test(name)) this.collides = true
    for (const keyword of refused) {
      if (schema[keyword] !== undefined) return this.#refuse(`${at}.${keyword}`, "not supported")
    }
    for (const keyword of ignored) if (schema[keyword] !== undefined) this.relaxed.add(keyword)

    if (schema["$ref"] !== undefined) return this.#reference(schema, at, depth, rule)
    if (isArray(schema["allOf"])) return this.#allOf(schema, schema["allOf"], at, depth, rule)
    const union = schema["anyOf"] ?? schema["oneOf"]
    if (union !== undefined) {
      const keyword = schema["anyOf"] === undefined ? "oneOf" : "anyOf"
      if (!isArray(union) || union.length === 0)
        return this.#refuse(`${at}.${keyword}`, "expected one schema or more")
      // Beside properties or items it only narrows them, and the model server would read nothing else.
      if (schema["properties"] === undefined && schema["items"] === undefined) {
        return this.#union(union, `${at}.${keyword}`, depth, rule)
      }
      this.relaxed.add(keyword)
    }
    if (schema["const"] !== undefined) return this.#constant(schema["const"], at)
    if (schema["enum"] !== undefined) return this.#enumeration(schema, schema["enum"], at)
    return this.#typed(schema, at, depth, rule)
  }

  #typed(schema: JsonObject, at: string, depth: number, rule: string): JsonObject {
    const { type } = schema
    if (isArray(type)) {
      if (type.length === 0 || type.length > types.length || !type.every(isType))
        return this.#refuse(`${at}.type`, "expected types of JSON")
      return type.length === 1
        ? this.#typed({ ...schema, type: type[0] ?? null }, at, depth, rule)
        : this.#union(
            type.map((one) => ({ ...schema, type: one })),
            `${at}.type`,
            depth,
            rule
          )
    }
    if (type !== undefined && !isType(type)) return this.#refuse(`${at}.type`, "expected a type of JSON")
    switch (type ?? impliedType(schema)) {
      case "object":
        return this.#object(schema, at, depth, rule)
      case "array":
        return this.#array(schema, at, depth, rule)
      case "string":
        return this.#string(schema, at)
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

  #leaveOut(schema: JsonObject, ...keywords: ReadonlyArray<string>): void {
    for (const keyword of keywords) if (schema[keyword] !== undefined) this.relaxed.add(keyword)
  }

  #reference(schema: JsonObject, at: string, depth: number, rule: string): JsonObject {
    const { $ref: reference, ...beside } = schema
    if (typeof reference !== "string" || !/^#(?:$|\/)/.test(reference)) {
      return this.#refuse(`${at}.$ref`, "expected a reference inside of this schema, like #/$defs/name")
    }
    const target = resolve(this.#root, reference)
    if (target === undefined)
      return this.#refuse(`${at}.$ref`, "expected a reference to something in this schema")
    if (this.#open.has(reference)) {
      this.relaxed.add("$ref")
      const type = isObject(target) ? (target["type"] ?? impliedType(target)) : undefined
      return isType(type) ? { type } : anything
    }
    this.#open.add(reference)
    // Keywords beside a reference apply too.
    const more = withoutDefinitions(beside)
    const merged = isObject(target) && Object.keys(more).length > 0 ? { ...target, ...more } : target
    const visited = this.visit(merged, at, depth + 1, rule)
    this.#open.delete(reference)
    return visited
  }

  /** Merges schemas of objects into one. */
  #allOf(schema: JsonObject, all: ReadonlyArray<Json>, at: string, depth: number, rule: string): JsonObject {
    if (all.length > bounds.alternatives) {
      return this.#refuse(`${at}.allOf`, `expected at most ${bounds.alternatives} schemas`)
    }
    const { allOf: _all, ...rest } = schema
    const parts = [...all.map((part) => this.#resolved(part)), rest]
    if (!parts.every(isObject)) return this.#refuse(`${at}.allOf`, "expected schemas of objects")
    // One schema alone, as some clients wrap a reference.
    const [first, second] = parts.filter((part) => Object.keys(withoutDefinitions(part)).length > 0)
    if (first === undefined) return anything
    if (second === undefined) return this.visit(first, at, depth + 1, rule)
    const properties: { [key: string]: Json } = {}
    const required: Array<Json> = []
    for (const part of parts) {
      if (part["anyOf"] !== undefined || part["oneOf"] !== undefined || part["allOf"] !== undefined) {
        return this.#refuse(`${at}.allOf`, "expected schemas of objects")
      }
      if ((part["type"] ?? "object") !== "object")
        return this.#refuse(`${at}.allOf`, "expected schemas of objects")
      for (const [key, value] of Object.entries(isObject(part["properties"]) ? part["properties"] : {})) {
        if (Object.hasOwn(properties, key)) {
          return this.#refuse(`${at}.allOf`, "expected each property in one of the schemas")
        }
        Object.defineProperty(properties, key, {
          value,
          enumerable: true,
          configurable: true,
          writable: true
        })
      }
      if (isArray(part["required"])) required.push(...part["required"])
    }
    return this.visit({ type: "object", properties, required }, at, depth + 1, rule)
  }

  /** The target of a schema that is only a reference. */
  #resolved(schema: Json): Json {
    if (!isObject(schema) || typeof schema["$ref"] !== "string" || this.#open.has(schema["$ref"]))
      return schema
    return resolve(this.#root, schema["$ref"]) ?? schema
  }

  #union(members: ReadonlyArray<Json>, at: string, depth: number, rule: string): JsonObject {
    if (members.length > bounds.alternatives) {
      return this.#refuse(at, `expected at most ${bounds.alternatives} alternatives`)
    }
    const prefix = rule === "" ? "alternative-" : `${rule}-`
    return { anyOf: members.map((member, i) => this.visit(member, `${at}.${i}`, depth + 1, `${prefix}${i}`)) }
  }

  #constant(value: Json, at: string): JsonObject {
    if (JSON.stringify(value).length > bounds.enumLength) {
      return this.#refuse(`${at}.const`, `expected at most ${bounds.enumLength} characters`)
    }
    if (isPlain(value)) return { const: value }
    this.relaxed.add("const")
    return typeOf([value])
  }

  #enumeration(schema: JsonObject, values: Json, at: string): JsonObject {
    if (!isArray(values) || values.length === 0)
      return this.#refuse(`${at}.enum`, "expected one value or more")
    if (values.length > bounds.enumValues || JSON.stringify(values).length > bounds.enumLength) {
      return this.#refuse(
        `${at}.enum`,
        `expected at most ${bounds.enumValues} values and ${bounds.enumLength} characters`
      )
    }
    if (schema["type"] !== undefined && !isType(schema["type"]) && !isArray(schema["type"])) {
      return this.#refuse(`${at}.type`, "expected a type of JSON")
    }
    if (values.every(isPlain)) return { enum: values }
    this.relaxed.add("enum")
    return typeOf(values)
  }

  #object(schema: JsonObject, at: string, depth: number, rule: string): JsonObject {
    const given = schema["properties"] ?? {}
    if (!isObject(given)) return this.#refuse(`${at}.properties`, "expected an object")
    const names = Object.keys(given)
    if (names.length > bounds.properties) {
      return this.#refuse(`${at}.properties`, `expected at most ${bounds.properties}`)
    }
    const properties: Array<readonly [string, JsonObject]> = []
    for (const name of names) {
      if (name.length > bounds.nameLength || !isPlain(name)) {
        return this.#refuse(
          `${at}.properties`,
          `expected names of at most ${bounds.nameLength} characters other than $ref, without quotes, backslashes and control characters`
        )
      }
      const path = rule === "" ? name : `${rule}-${name}`
      properties.push([name, this.visit(given[name], `${at}.properties.${name}`, depth + 1, path)])
    }
    const extra = this.#additional(schema, names, at, depth, rule)
    const required = schema["required"] ?? []
    if (
      !isArray(required) ||
      required.length > bounds.properties ||
      !required.every((name) => typeof name === "string")
    ) {
      return this.#refuse(`${at}.required`, "expected names")
    }
    const presentNames = required.filter((name) => Object.hasOwn(given, name))
    return {
      type: "object",
      ...(properties.length === 0 && extra === undefined
        ? {}
        : { properties: Object.fromEntries(properties) }),
      ...(presentNames.length === 0 ? {} : { required: presentNames }),
      ...(extra === undefined ? {} : { additionalProperties: extra })
    }
  }

  #additional(
    schema: JsonObject,
    names: ReadonlyArray<string>,
    at: string,
    depth: number,
    rule: string
  ): JsonObject | undefined {
    const extra = schema["additionalProperties"]
    if (extra === undefined || extra === false) return undefined
    // An object without properties matches any object.
    if (names.length === 0 && extra === true) return undefined
    if (!names.every((name) => simpleName.test(name))) {
      this.relaxed.add("additionalProperties")
      return undefined
    }
    return this.visit(
      extra,
      `${at}.additionalProperties`,
      depth + 1,
      `${rule}${rule === "" ? "" : "-"}additional-value`
    )
  }

  #array(schema: JsonObject, at: string, depth: number, rule: string): JsonObject {
    const step = rule === "" ? "" : `${rule}-`
    const tuple = isArray(schema["items"]) ? schema["items"] : schema["prefixItems"]
    if (tuple !== undefined) {
      if (!isArray(tuple) || tuple.length === 0 || tuple.length > bounds.alternatives) {
        return this.#refuse(`${at}.prefixItems`, `expected 1 to ${bounds.alternatives} schemas`)
      }
      this.#leaveOut(schema, "minItems", "maxItems")
      return {
        type: "array",
        prefixItems: tuple.map((item, i) =>
          this.visit(item, `${at}.prefixItems.${i}`, depth + 1, `${step}tuple-${i}`)
        )
      }
    }
    const sizes = this.#sizes(schema, "minItems", "maxItems", at)
    if (schema["items"] === undefined && Object.keys(sizes).length === 0) return { type: "array" }
    const items = this.visit(schema["items"] ?? true, `${at}.items`, depth + 1, `${step}item`)
    return { type: "array", items, ...sizes }
  }

  #string(schema: JsonObject, at: string): JsonObject {
    const { format, pattern } = schema
    const safe = typeof pattern === "string" ? safePattern(pattern) : undefined
    if (safe !== undefined) {
      this.#repeat(safe.repetitions)
      this.#leaveOut(schema, "minLength", "maxLength", "format")
      return { type: "string", pattern: safe.text }
    }
    if (pattern !== undefined) this.relaxed.add("pattern")
    if (typeof format === "string" && knownFormat.test(format)) {
      this.#leaveOut(schema, "minLength", "maxLength")
      return { type: "string", format }
    }
    if (format !== undefined) this.relaxed.add("format")
    return { type: "string", ...this.#sizes(schema, "minLength", "maxLength", at) }
  }

  #repeat(times: number): void {
    this.#repetitions += times
    if (this.#repetitions > bounds.allRepetitions) {
      this.#refuse(
        "format",
        `expected at most ${bounds.allRepetitions} repetitions in all of its lengths and patterns`
      )
    }
  }

  /**
   * A minimum that is too large is refused. A maximum that is too large is left out: the answer may only be longer.
   */
  #sizes(schema: JsonObject, minimum: string, maximum: string, at: string): JsonObject {
    const [from, to] = [schema[minimum] ?? 0, schema[maximum]]
    if (!isCount(from) || from > bounds.repetitions) {
      return this.#refuse(`${at}.${minimum}`, `expected a whole number from 0 to ${bounds.repetitions}`)
    }
    if (to !== undefined && !isCount(to)) return this.#refuse(`${at}.${maximum}`, "expected a whole number")
    if (to !== undefined && to < from) return this.#refuse(`${at}.${maximum}`, `expected at least ${minimum}`)
    const bounded = to !== undefined && to <= bounds.repetitions
    if (to !== undefined && !bounded) this.relaxed.add(maximum)
    this.#repeat(bounded ? to : from)
    return { ...(from === 0 ? {} : { [minimum]: from }), ...(bounded ? { [maximum]: to } : {}) }
  }

  #integer(schema: JsonObject, at: string): JsonObject {
    const least = this.#integerBound(schema, "minimum", "exclusiveMinimum", 1)
    const most = this.#integerBound(schema, "maximum", "exclusiveMaximum", -1)
    if (least !== undefined && most !== undefined && least > most) {
      return this.#refuse(`${at}.maximum`, "expected at least minimum")
    }
    return {
      type: "integer",
      ...(least === undefined ? {} : { minimum: least }),
      ...(most === undefined ? {} : { maximum: most })
    }
  }

  /** The tighter of both bounds, as an inclusive one. The converter reads 32 bits and changes larger numbers. */
  #integerBound(schema: JsonObject, inclusive: string, exclusive: string, step: 1 | -1): number | undefined {
    const candidates: Array<number> = []
    const [open, closed] = [schema[exclusive], schema[inclusive]]
    if (typeof closed === "number") candidates.push(step === 1 ? Math.ceil(closed) : Math.floor(closed))
    if (typeof open === "number") candidates.push(step === 1 ? Math.floor(open) + 1 : Math.ceil(open) - 1)
    if (candidates.length === 0) return undefined
    const bound = step === 1 ? Math.max(...candidates) : Math.min(...candidates)
    if (String(Math.abs(bound)).length <= bounds.integerDigits) return bound === 0 ? 0 : bound
    // The largest safe integer of JavaScript means that there is no bound.
    if (Math.abs(bound) < Number.MAX_SAFE_INTEGER) {
      this.relaxed.add(typeof closed === "number" ? inclusive : exclusive)
    }
    return undefined
  }
}
