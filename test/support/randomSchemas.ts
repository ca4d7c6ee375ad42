/**
 * JSON schemas as clients, generators and attackers write them: every keyword, with sensible values, with none, with absurd
 * ones, names that collide with rules of the model server's grammar, references that lead nowhere or back.
 */
import type { Json, JsonObject } from "../../src/domain/Inference.ts"
import { Random, wordsOf } from "../fuzz/Random.ts"

const names = [
  ...wordsOf(
    String.raw`a name email date_time integral_part integral-part string root space char dot value item`
  ),
  ...wordsOf(String.raw`additional größe 日本 a]b a-b ^ $ref __proto__ quo"te back\slash`),
  "with space",
  "new\nline",
  "",
  "x".repeat(64)
]

const patterns = [
  ...wordsOf(
    String.raw`^[a-z]+$ ^\d{5}$ ^\w+$ ^(?:ab|cd)+$ ^(?=x).*$ ^*$ ^+a$ ^$ ^.*$ ^.{0,500}$ ^a{1000}$ ^[^,]+$`
  ),
  ...wordsOf(
    String.raw`^(a*)*$ ^(a|)$ ^a|b$ ^[]$ ^[a-$ ^[a-c-]{2,3}x?$ ^\S+\s\D$ ^\u0041\x42$ ^a+?b*?c??$ ^"$`
  ),
  ...wordsOf(String.raw`^((((((((((((((((((a))))))))))))))))))$ [0-9]{5} ^a.b*c$ ^[.*+?(){}|$/-]+$`),
  ...wordsOf(
    String.raw`^\.\+\*\?\(\)\{\}\|\$\/\-$ ^([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9]+\.)+[A-Za-z]{2,}$`
  ),
  ""
]

const atoms = [...wordsOf(String.raw`a b0 . [a-z] [^x] \d \w \. (?:a|b) (c) - _ é " \b ^`), " "]
const quantifiers = ["", "", "", ...wordsOf("* + ? {2} {1,3} {2,} {0,40} ?? {3,1} {99999}")]
const types = ["", ...wordsOf("object array string number integer boolean null any value space")]
const formats = ["", ...wordsOf("date time date-time uuid uuid4 email uri ipv4 string")]
const counts = [0, 1, 2, 3, 7, 40, 300, 500, 501, 5000, 100_000, -1, 2.5, 1e300] as const
const references = [
  "",
  "#",
  ...wordsOf("#/$defs/A #/$defs/B #/$defs/C #/properties/a #/nowhere https://a.invalid/x A")
]
const constants: readonly [Json, ...Array<Json>] = [
  { k: [1, "x"] },
  [],
  null,
  true,
  1,
  -2.5,
  "two words",
  "é",
  'q"',
  "b\\",
  "\n",
  "\u0001",
  "\ud800",
  "z".repeat(300)
]

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
    if (this.#random.chance(2)) return this.#random.word(patterns)
    let text = "^"
    for (let i = this.#random.int(6); i >= 0; i -= 1)
      text += this.#random.word(atoms) + this.#random.word(quantifiers)
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
    const random = this.#random
    const chance = (one: number) => random.chance(one)
    /** Of any size, and at the edge of a power of ten: a grammar has a rule for each digit. */
    const number = () =>
      (random.int(3) - 1) * 10 ** random.int(17) + random.int(3) - 1 + (chance(8) ? 0.5 : 0)
    this.#left -= 1
    const schema: { [key: string]: Json } = {}
    if (this.#left < 0 || depth > 12) return chance(2) ? { type: random.word(types) } : { type: "string" }
    // Half of all schemas are what a client might well send.
    const kind = random.int(12)
    if (kind < 5) {
      schema["type"] = "object"
      const properties: { [key: string]: Json } = {}
      for (let i = random.int(6); i >= 0; i -= 1) {
        const name = chance(3) ? random.word(names) : `p${i}`
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
      if (chance(2)) schema["minItems"] = random.pick(counts)
      if (chance(2)) schema["maxItems"] = random.pick(counts)
    } else if (kind < 9) {
      schema["type"] = "string"
      if (chance(2)) schema["pattern"] = this.#pattern()
      if (chance(3)) schema["format"] = random.word(formats)
      if (chance(3)) schema["minLength"] = random.pick(counts)
      if (chance(3)) schema["maxLength"] = random.pick(counts)
    } else if (kind < 10) {
      schema["type"] = "integer"
      if (chance(2)) schema["minimum"] = number()
      if (chance(2)) schema["maximum"] = number()
      if (chance(4)) schema["exclusiveMinimum"] = number()
      if (chance(4)) schema["exclusiveMaximum"] = number()
    } else if (!chance(4)) {
      schema["type"] = random.word(types)
    }
    if (chance(8)) schema[random.pick(["anyOf", "oneOf", "allOf"])] = this.#members(depth)
    if (chance(12)) schema["enum"] = Array.from({ length: random.int(6) }, () => random.pick(constants))
    if (chance(16)) schema["const"] = random.pick(constants)
    if (chance(10)) schema["$ref"] = random.word(references)
    if (chance(16)) schema["type"] = Array.from({ length: random.int(4) }, () => random.word(types))
    if (chance(16)) schema["prefixItems"] = this.#members(depth)
    if (chance(40))
      schema[random.pick(["not", "if", "contains", "patternProperties", "title", "default"])] =
        this.#some(depth)
    return schema
  }
}
