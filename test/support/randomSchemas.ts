/**
 * JSON schemas as clients, generators and attackers write them: every keyword, with sensible values, with none, with absurd
 * ones, names that collide with rules of the model server's grammar, references that lead nowhere or back.
 */
import type { Json, JsonObject } from "../../src/domain/Inference.ts"
import { Random } from "../fuzz/Random.ts"

const names = [
  "a",
  "name",
  "email",
  "date_time",
  "integral_part",
  "integral-part",
  "string",
  "root",
  "space",
  "char",
  "dot",
  "value",
  "item",
  "additional",
  "größe",
  "日本",
  "with space",
  "a]b",
  "a-b",
  "^",
  "$ref",
  "__proto__",
  'quo"te',
  "back\\slash",
  "new\nline",
  "",
  "x".repeat(64)
] as const

const patterns = [
  "^[a-z]+$",
  "^\\d{5}$",
  "^\\w+$",
  "^(?:ab|cd)+$",
  "^(?=x).*$",
  "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$",
  "^(?:(?:\\d\\d[2468][048]|\\d\\d[13579][26]|\\d\\d0[48]|[02468][048]00|[13579][26]00)-02-29|\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|(?:02)-(?:0[1-9]|1\\d|2[0-8])))$",
  "^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|0{8}-0{4}-0{4}-0{4}-0{12})$",
  "^*$",
  "^+a$",
  "^$",
  "^.*$",
  "^.{0,500}$",
  "^a{1000}$",
  "^[^,]+$",
  "^(a*)*$",
  "^(a|)$",
  "^a|b$",
  "^[]$",
  "^[a-$",
  "^[a-c-]{2,3}x?$",
  "^\\S+\\s\\D$",
  "^\\u0041\\x42$",
  "^a+?b*?c??$",
  "^((((((((((((((((((a))))))))))))))))))$",
  "[0-9]{5}",
  '^"$',
  "^a.b*c$",
  "^\\.\\+\\*\\?\\(\\)\\{\\}\\|\\$\\/\\-$",
  "^[.*+?(){}|$/-]+$",
  ""
] as const

const atoms = [
  "a",
  "b0",
  ".",
  "[a-z]",
  "[^x]",
  "\\d",
  "\\w",
  "\\.",
  "(?:a|b)",
  "(c)",
  "-",
  "_",
  "é",
  '"',
  "\\b",
  "^",
  " "
] as const
const quantifiers = [
  "",
  "",
  "",
  "*",
  "+",
  "?",
  "{2}",
  "{1,3}",
  "{2,}",
  "{0,40}",
  "??",
  "{3,1}",
  "{99999}"
] as const

const types = [
  "object",
  "array",
  "string",
  "number",
  "integer",
  "boolean",
  "null",
  "any",
  "",
  "value",
  "space"
] as const
const counts = [0, 1, 2, 3, 7, 40, 300, 500, 501, 5000, 100_000, -1, 2.5, 1e300] as const
const numbers = [
  0,
  1,
  -1,
  5,
  9,
  10,
  11,
  19,
  99,
  100,
  123,
  1000,
  54_321,
  999_999_999,
  -7,
  -10,
  -99,
  -123_456,
  2 ** 31,
  -(2 ** 31),
  1e18,
  2.5,
  -0.5,
  9_007_199_254_740_991,
  -9_007_199_254_740_991
] as const
const formats = ["date", "time", "date-time", "uuid", "uuid4", "email", "uri", "ipv4", "", "string"] as const
const values: readonly [Json, ...Array<Json>] = [
  "a",
  "two words",
  "é",
  1,
  -2.5,
  null,
  true,
  false,
  { k: [1, "x"] },
  [],
  'q"',
  "b\\",
  "\n",
  "\u0001",
  "\ud800",
  "z".repeat(300)
]
const references = [
  "#",
  "#/$defs/A",
  "#/$defs/B",
  "#/$defs/C",
  "#/properties/a",
  "#/nowhere",
  "https://example.invalid/x",
  "A",
  ""
] as const

export class RandomSchemas {
  readonly #random: Random
  #left = 0

  constructor(random: Random) {
    this.#random = random
  }

  next(): JsonObject {
    this.#left = 4 + this.#random.int(60)
    const schema: { [key: string]: Json } = { ...this.#schema(0) }
    if (this.#random.chance(2))
      schema["$defs"] = { A: this.#schema(1), B: this.#schema(1), C: { $ref: "#/$defs/A" } }
    return schema
  }

  #pattern(): string {
    if (this.#random.chance(2)) return this.#random.pick(patterns)
    let text = "^"
    for (let i = this.#random.int(6); i >= 0; i -= 1)
      text += this.#random.pick(atoms) + this.#random.pick(quantifiers)
    return `${text}$`
  }

  #some(depth: number): Json {
    return this.#random.chance(25)
      ? this.#random.pick<Json>([true, false, {}, 1, null, "x"])
      : this.#schema(depth + 1)
  }

  #members(depth: number): Array<Json> {
    return Array.from({ length: this.#random.int(5) }, () => this.#some(depth))
  }

  #schema(depth: number): JsonObject {
    const { pick, chance, int } = {
      pick: <A>(from: readonly [A, ...Array<A>]) => this.#random.pick<A>(from),
      chance: (one: number) => this.#random.chance(one),
      int: (below: number) => this.#random.int(below)
    }
    this.#left -= 1
    const schema: { [key: string]: Json } = {}
    if (this.#left < 0 || depth > 12) return chance(2) ? { type: pick(types) } : { type: "string" }
    // Half of all schemas are what a client might well send.
    const kind = int(12)
    if (kind < 5) {
      schema["type"] = "object"
      const properties: { [key: string]: Json } = {}
      for (let i = int(6); i >= 0; i -= 1) {
        const name = chance(3) ? pick(names) : `p${i}`
        Object.defineProperty(properties, name, {
          value: this.#some(depth),
          enumerable: true,
          configurable: true
        })
      }
      schema["properties"] = properties
      if (chance(2)) schema["required"] = Object.keys(properties).filter(() => chance(2))
      if (chance(3)) schema["additionalProperties"] = chance(2) ? chance(2) : this.#some(depth)
    } else if (kind < 7) {
      schema["type"] = "array"
      if (!chance(6)) schema["items"] = this.#some(depth)
      if (chance(2)) schema["minItems"] = pick(counts)
      if (chance(2)) schema["maxItems"] = pick(counts)
    } else if (kind < 9) {
      schema["type"] = "string"
      if (chance(2)) schema["pattern"] = this.#pattern()
      if (chance(3)) schema["format"] = pick(formats)
      if (chance(3)) schema["minLength"] = pick(counts)
      if (chance(3)) schema["maxLength"] = pick(counts)
    } else if (kind < 10) {
      schema["type"] = "integer"
      if (chance(2)) schema["minimum"] = pick(numbers)
      if (chance(2)) schema["maximum"] = pick(numbers)
      if (chance(4)) schema["exclusiveMinimum"] = pick(numbers)
      if (chance(4)) schema["exclusiveMaximum"] = pick(numbers)
    } else if (!chance(4)) {
      schema["type"] = pick(types)
    }
    if (chance(8)) schema[pick(["anyOf", "oneOf", "allOf"])] = this.#members(depth)
    if (chance(12)) schema["enum"] = Array.from({ length: int(6) }, () => pick(values))
    if (chance(16)) schema["const"] = pick(values)
    if (chance(10)) schema["$ref"] = pick(references)
    if (chance(16)) schema["type"] = Array.from({ length: int(4) }, () => pick(types))
    if (chance(16)) schema["prefixItems"] = this.#members(depth)
    if (chance(40))
      schema[pick(["not", "if", "contains", "patternProperties", "title", "default"])] = this.#some(depth)
    return schema
  }
}
