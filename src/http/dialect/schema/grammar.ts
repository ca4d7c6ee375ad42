/**
 * Computes an upper bound of the size of the grammar that the model server's converter writes for an admitted schema.
 * The converter writes into a buffer of at least 32 KiB and cuts off the rest, and half a grammar crashes its runner.
 * The names of rules are the paths of subschemas, so a grammar can be much longer than its schema. Measured on 17,000
 * admitted schemas: never less than what the converter of 0.11.4 wrote, and about twice that for large ones.
 */
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import { isArray, isObject } from "../../../domain/json.ts"

/** Size of all built-in rules of the converter. */
const builtinRules = 2048
/** `::=`, spaces, a newline, a number where a name is taken, and the name of the root. */
const ruleOverhead = 14
/** `date-time-string` */
const longestBuiltin = 16

const bytesOf = (text: string): number => Buffer.byteLength(text)
/** A text as a literal of the grammar: quoted, with inner quotes escaped. */
const literalBytes = (value: Json): number => {
  const text = JSON.stringify(value)
  return bytesOf(text) + text.split('"').length + 1
}

class GrammarSize {
  bytes = builtinRules

  #rule(name: number, content: number): number {
    this.bytes += name + content + ruleOverhead
    return name + 4
  }

  /** Adds the rules of `schema` and returns the length of its name. `name`: bytes of the path so far. */
  add(schema: Json | undefined, name: number): number {
    if (!isObject(schema)) return this.#rule(name, 16)
    const { anyOf, enum: values, items, pattern, prefixItems, properties, type } = schema
    if (isArray(anyOf)) return this.#alternatives(anyOf, name)
    if (isArray(type)) return this.#rule(name, type.length * 24)
    if (schema["const"] !== undefined) return this.#rule(name, literalBytes(schema["const"]) + 8)
    if (isArray(values)) {
      return this.#rule(name, 16 + values.reduce<number>((sum, value) => sum + literalBytes(value) + 3, 0))
    }
    if (isObject(properties) || isObject(schema["additionalProperties"])) return this.#object(schema, name)
    if (isArray(prefixItems)) {
      return this.#rule(
        name,
        24 + prefixItems.reduce<number>((sum, item, i) => sum + this.add(item, name + 8 + digits(i)) + 13, 0)
      )
    }
    if (isObject(items)) return this.#rule(name, 2 * this.add(items, name + 5) + 96)
    if (typeof pattern === "string") return this.#pattern(pattern, name)
    const own = leafBytes(schema)
    return own === 0 ? longestBuiltin : this.#rule(name, own)
  }

  #alternatives(anyOf: ReadonlyArray<Json>, name: number): number {
    let content = 0
    for (const [i, member] of anyOf.entries()) content += this.add(member, name + 12 + digits(i)) + 3
    return this.#rule(name, content)
  }

  /** Each repeated part becomes a rule of its own, and is also in the main rule. */
  #pattern(pattern: string, name: number): number {
    const parts = pattern.split("{").length
    this.bytes += parts * (name + ruleOverhead + 8)
    // A space between any two pieces.
    return this.#rule(name, 3 * bytesOf(pattern) + 2 * parts * (name + 8))
  }

  #object(schema: JsonObject, name: number): number {
    const properties = Object.entries(isObject(schema["properties"]) ? schema["properties"] : {})
    let content = 64
    for (const [key, member] of properties) {
      const path = name + 1 + bytesOf(key)
      const used = this.add(member, path)
      const pair = this.#rule(path + 3, literalBytes(key) + 20 + used)
      // The pair, and the rule for everything after it, each in the main rule and in the rule before.
      const rest = this.#rule(path + 5, pair + 32 + path + 9)
      content += pair + rest + 24
    }
    const extra = schema["additionalProperties"]
    if (extra === true || isObject(extra)) {
      const path = name + 11
      const used = this.add(extra, path + 6)
      const names = properties.reduce((sum, [key]) => sum + 26 * bytesOf(key), 64)
      const pair = this.#rule(path + 3, this.#rule(path + 2, names) + 16 + used)
      content += 3 * pair + 64
    }
    return this.#rule(name, content)
  }
}

/** The size of a text or a number beyond the built-in rules. */
const leafBytes = (schema: JsonObject): number => {
  // An integer between two bounds is written digit by digit.
  if (schema["minimum"] !== undefined || schema["maximum"] !== undefined) return 2048
  return schema["format"] !== undefined ||
    schema["minLength"] !== undefined ||
    schema["maxLength"] !== undefined
    ? 64
    : 0
}

const digits = (index: number): number => String(index).length

/** The model server's buffer for a grammar: by the length of the schema, between two bounds. */
export const grammarBytes = (schema: JsonObject): number =>
  Math.max(32_768, Math.min(1_048_576, 4 * JSON.stringify(schema).length))

/** Bytes of the grammar, at most. */
export const grammarSize = (schema: JsonObject): number => {
  const size = new GrammarSize()
  size.add(schema, 0)
  return size.bytes
}
