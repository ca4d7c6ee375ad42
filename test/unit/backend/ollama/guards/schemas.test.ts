import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import * as z from "zod"
import type { Json, JsonObject } from "../../../../../src/domain/Inference.ts"
import { nativeChat, nativeGenerate } from "../../../../../src/http/dialect/native/dialect.ts"
import { openaiChat } from "../../../../../src/http/dialect/openai/dialect.ts"
import { patternOf, schemaBounds } from "../../../../../src/backend/ollama/guards/jsonSchema.ts"
import { admitSchema } from "../../../../../src/backend/ollama/guards/schemas.ts"
import { Random, wordsOf } from "../../../../fuzz/Random.ts"
import { RandomSchemas } from "../../../../support/randomSchemas.ts"
import { decoding } from "../../../http/decoding.ts"

const text = { type: "string" }
const object = (properties: JsonObject, more: JsonObject = {}): JsonObject => ({
  type: "object",
  properties,
  ...more
})
const inside = (schema: Json): JsonObject => object({ a: schema })
const sent = (schema: JsonObject) => Result.getOrThrow(admitSchema(schema, "format"))
const refusal = (schema: JsonObject) =>
  Result.match(admitSchema(schema, "format"), { onFailure: (why) => why, onSuccess: () => "accepted" })
const toJson = (value: unknown): JsonObject => JSON.parse(JSON.stringify(value))

const surfaces = {
  "/api/chat": (schema: JsonObject) => decoding(nativeChat).decoded({ model: "m", format: schema }),
  "/api/generate": (schema: JsonObject) => decoding(nativeGenerate).decoded({ model: "m", format: schema }),
  "/v1/chat/completions": (schema: JsonObject) =>
    decoding(openaiChat).decoded({
      model: "m",
      messages: [{ role: "user", content: "hi" }],
      response_format: { type: "json_schema", json_schema: { name: "n", schema } }
    })
}

const listed = <A>(count: number, item: (i: number) => A) => Array.from({ length: count }, (_, i) => item(i))

/** A schema that counts how often its fields and elements are read. */
const countingReads = (schema: JsonObject) => {
  let reads = 0
  const counted = <A extends object>(value: A): A =>
    new Proxy(value, {
      get: (target, key) => {
        reads += 1
        const inner: unknown = Reflect.get(target, key)
        return typeof inner === "object" && inner !== null ? counted(inner) : inner
      },
      ownKeys: (target) => {
        const keys = Reflect.ownKeys(target)
        reads += keys.length
        return keys
      }
    })
  return { schema: counted(schema), reads: () => reads }
}

describe("a schema", () => {
  for (const [path, decoded] of Object.entries(surfaces)) {
    it(`when it is on ${path}, then it is written anew, and the answer names what was left out`, () => {
      const request = Result.getOrThrow(decoded(inside({ type: "string", pattern: "^(?=x)y$", title: "t" })))
      assert.deepStrictEqual(request.body["format"], inside(text))
      assert.deepStrictEqual(request.relaxed, ["pattern"])
      const refused = decoded({ type: "object", properties: { a: { type: "colour" } } })
      assert.isTrue(
        Result.isFailure(refused) &&
          refused.failure.detail.endsWith(".properties.a.type: expected a type of JSON")
      )
    })
  }

  it("when it is zod's, with an e-mail and a date, then it is written anew", () => {
    const schema = z.toJSONSchema(
      z.object({ email: z.email(), date: z.iso.date(), id: z.uuid(), count: z.int().min(1) })
    )
    const { schema: admitted } = sent(toJson(schema))
    assert.notMatch(JSON.stringify(admitted), /\(\?|\\\\/)
    assert.deepStrictEqual(admitted["required"], ["email", "date", "id", "count"])
    assert.deepInclude(Object(admitted["properties"])["count"], { type: "integer", minimum: 1 })
    // The lookaheads of zod 3.
    const older = "^(?!\\.)(?!.*\\.\\.)([A-Z0-9_'+\\-\\.]*)[A-Z0-9_+-]@([A-Z0-9][A-Z0-9\\-]*\\.)+[A-Z]{2,}$"
    assert.deepStrictEqual(sent(inside({ type: "string", format: "email", pattern: older })), {
      schema: inside(text),
      relaxed: ["format", "pattern"]
    })
  })

  it("when nothing can match it, or it means something else without a keyword, then it is refused with a reason", () => {
    const cases: ReadonlyArray<readonly [JsonObject, string]> = [
      [{ type: "foo" }, "format.type: expected a type of JSON"],
      [{ type: [] }, "format.type: expected types of JSON"],
      [{ oneOf: [] }, "format.oneOf: expected one schema or more"],
      [{ anyOf: [] }, "format.anyOf: expected one schema or more"],
      [{ enum: [] }, "format.enum: expected one value or more"],
      [inside({ not: text }), "format.properties.a.not: not supported"],
      [{ if: {}, else: {} }, "format.if: not supported"],
      [inside(false), "format.properties.a: expected a schema that something can match"],
      [{ $ref: "#/$defs/gone" }, "format.$ref: expected a reference to something in this schema"],
      [{ $ref: "https://example.invalid/" }, "format.$ref: expected a reference inside of this schema"],
      [{ type: "string", minLength: 5000 }, "format.minLength: expected a whole number from 0 to 500"],
      [{ type: "array", minItems: 3, maxItems: 2 }, "format.maxItems: expected at least minItems"],
      [{ type: "integer", minimum: 3, maximum: 2 }, "format.maximum: expected at least minimum"],
      [{ allOf: [text, { type: "number" }] }, "format.allOf: expected schemas of objects"],
      [object({ $ref: text }), "format.properties: expected names"],
      [object({ "\ud800": text }), "format.properties: expected names"]
    ]
    for (const [schema, why] of cases) assert.include(refusal(schema), why, JSON.stringify(schema))
  })

  it("when a keyword only narrows it, then the keyword is left out and the rest is kept", () => {
    const cases: ReadonlyArray<readonly [JsonObject, JsonObject, ReadonlyArray<string>]> = [
      [{ type: "array", items: text, maxItems: 100_000 }, { type: "array", items: text }, ["maxItems"]],
      [{ type: "string", pattern: "[0-9]{5}" }, text, ["pattern"]],
      [{ type: "number", minimum: 0 }, { type: "number" }, ["minimum"]],
      [{ type: "integer", maximum: 1e12 }, { type: "integer" }, ["maximum"]],
      [{ type: "integer", maximum: Number.MAX_SAFE_INTEGER }, { type: "integer" }, []],
      [
        { type: "integer", exclusiveMinimum: 2, maximum: 4.5 },
        { type: "integer", minimum: 3, maximum: 4 },
        []
      ],
      [{ enum: ["a", 'q"\\'] }, { enum: ["a", 'q"\\'] }, []],
      [{ enum: ["a", "\ud800"] }, { anyOf: [text] }, ["enum"]],
      [{ const: { $ref: 1 } }, { anyOf: [{ type: "object" }] }, ["const"]],
      [{ type: "string", format: "ipv4" }, text, ["format"]],
      [
        object({ "a-b": text }, { additionalProperties: true }),
        object({ "a-b": text }),
        ["additionalProperties"]
      ],
      [object({ a: text }, { anyOf: [{ required: ["a"] }] }), object({ a: text }), ["anyOf"]],
      [{ type: "array", uniqueItems: true }, { type: "array" }, ["uniqueItems"]],
      [
        object({ a: text }, { required: ["a", "b"], additionalProperties: false }),
        object({ a: text }, { required: ["a"] }),
        []
      ],
      [{ type: ["string", "null"] }, { anyOf: [text, { type: "null" }] }, []],
      [{ allOf: [{ $ref: "#/$defs/A" }], $defs: { A: text } }, text, []],
      [{ allOf: [object({ a: text }), object({ b: text })] }, object({ a: text, b: text }), []]
    ]
    for (const [schema, admitted, relaxed] of cases) {
      assert.deepStrictEqual(sent(schema), { schema: admitted, relaxed }, JSON.stringify(schema))
    }
  })

  it("when it has references, then they are replaced, and one that leads back to itself is cut", () => {
    const tree = object({ name: text, children: { type: "array", items: { $ref: "#" } } })
    assert.deepStrictEqual(
      sent({ $ref: "#/$defs/tree", $defs: { tree: object({ next: { $ref: "#/$defs/tree" } }) } }),
      {
        schema: object({ next: { type: "object" } }),
        relaxed: ["$ref"]
      }
    )
    const once = object({ name: text, children: { type: "array", items: { type: "object" } } })
    assert.deepStrictEqual(
      sent(tree).schema,
      object({ name: text, children: { type: "array", items: once } })
    )
    // Doubling: 2^20 subschemas in 20 definitions.
    const $defs = Object.fromEntries(
      Array.from({ length: 20 }, (_, i) => [
        `d${i}`,
        object({ a: { $ref: `#/$defs/d${i + 1}` }, b: { $ref: `#/$defs/d${i + 1}` } })
      ])
    )
    assert.match(refusal({ $ref: "#/$defs/d0", $defs: { ...$defs, d20: text } }), /expected at most/)
  })

  it("when it is beyond a bound, then it is refused", () => {
    const nested = (depth: number): JsonObject => (depth === 0 ? text : inside(nested(depth - 1)))
    const wide = (count: number, name: (i: number) => string) =>
      object(Object.fromEntries(Array.from({ length: count }, (_, i) => [name(i), text])))
    const repeated = (count: number) =>
      object(Object.fromEntries(listed(count, (i) => [`p${i}`, { type: "string", maxLength: 500 }])))
    const { depth, keywords, listed: most, merged } = schemaBounds
    const atBounds: ReadonlyArray<readonly [(more: 0 | 1) => JsonObject, RegExp]> = [
      [(more) => nested(depth - 1 + more), /at most 32 levels of subschemas/],
      [(more) => Object.fromEntries(listed(keywords + more, (i) => [`x${i}`, 1])), /at most 64 keywords/],
      [(more) => ({ allOf: listed(merged + more, () => ({})) }), /at most 32 schemas/],
      [(more) => ({ enum: listed(most + more, (i) => i) }), /at most 500 names or values/],
      [
        (more) => ({ type: "object", required: listed(most + more, () => "a") }),
        /at most 500 names or values/
      ],
      [(more) => repeated(4 + more), /at most 2000 repetitions/],
      [(more) => wide(more === 0 ? 46 : 52, (i) => `${i}`.padStart(60, "n")), /expected a smaller schema/]
    ]
    for (const [schema, why] of atBounds) {
      assert.strictEqual(refusal(schema(0)), "accepted", String(why))
      assert.match(refusal(schema(1)), why)
    }
    const many = { anyOf: listed(32, () => ({ anyOf: listed(16, () => text) })) }
    assert.match(refusal(many), /at most 500 subschemas|a smaller schema/)
  })

  it("when references multiply what must be read, then the schema is refused before it is read so often", () => {
    const references = (count: number, more = "") => listed(count, () => ({ $ref: `#/$defs/b${more}` }))
    const names = Object.fromEntries(listed(5000, (i) => [`p${i}`, true]))
    const targets: ReadonlyArray<Json> = [
      { type: "object", required: listed(5000, () => "") },
      { type: "object", properties: names },
      names,
      { anyOf: listed(5000, () => true) },
      { prefixItems: listed(5000, () => true) },
      { type: listed(5000, () => "string") },
      { enum: listed(400, (i) => `${i}`) }
    ]
    for (const b of targets) {
      for (const anyOf of [references(400), listed(400, () => ({ allOf: references(32) }))]) {
        const { reads, schema } = countingReads({ $defs: { b }, anyOf })
        assert.notStrictEqual(refusal(schema), "accepted")
        assert.isBelow(reads(), 400_000)
      }
    }
    for (const more of ["/".repeat(400), "/".repeat(40_000)])
      assert.notStrictEqual(refusal({ anyOf: references(400, more) }), "accepted")
  })

  it("when schemas are random, then those that are admitted stay admitted, within the bounds, and have known keywords only", () => {
    const keywords = new Set([
      ...wordsOf(
        "type properties required additionalProperties items prefixItems minItems maxItems minLength"
      ),
      ...wordsOf("maxLength pattern format minimum maximum enum const anyOf")
    ])
    const assertKnown = (schema: Json | undefined): void => {
      if (typeof schema !== "object" || schema === null || Array.isArray(schema)) return
      const inner = Object(schema)
      for (const key of Object.keys(inner)) assert.isTrue(keywords.has(key), key)
      for (const member of Object.values<Json>(inner.properties ?? {})) assertKnown(member)
      for (const member of [
        ...(inner.anyOf ?? []),
        ...(inner.prefixItems ?? []),
        inner.items,
        inner.additionalProperties
      ]) {
        assertKnown(member)
      }
    }
    const schemas = new RandomSchemas(new Random(20_261_122))
    let admitted = 0
    for (let i = 0; i < 5000; i += 1) {
      const result = admitSchema(schemas.next(), "format")
      if (Result.isFailure(result)) {
        assert.match(result.failure, /^format.*: (?:expected|not supported)/s)
        continue
      }
      admitted += 1
      const { schema } = result.success
      assertKnown(schema)
      assert.strictEqual(refusal(schema), "accepted")
    }
    assert.isAbove(admitted, 1500)
  })
})

describe("a pattern", () => {
  const written = (pattern: string) => patternOf(pattern, schemaBounds.repetitions)?.text

  it("when it is made of characters, brackets and quantifiers, then it is written for the grammar", () => {
    const kept: ReadonlyArray<readonly [string, string]> = [
      ["^\\d{5}$", "^[0-9]{5}$"],
      ["^\\w+$", "^[A-Za-z0-9_]+$"],
      ["^[a-c-]{2,3}x?$", "^[-a-c]{2,3}[x]?$"],
      ["^a\\.b$", "^[a][.][b]$"],
      ["^[^,]$", '^[^,"\\\\\\x7F\\x00-\\x1F]$'],
      ["^.$", '^[^"\\\\\\x7F\\x00-\\x1F]$']
    ]
    for (const [pattern, expected] of kept) {
      assert.strictEqual(written(pattern), expected)
      for (const candidate of ["", "a", "axb", "a.b", "12345", "1234", "ab-", "-", "é", "A_9", ","])
        assert.strictEqual(new RegExp(expected).test(candidate), new RegExp(pattern).test(candidate), pattern)
    }
  })

  it("when it has anything else, then it is left out", () => {
    const left = String.raw`a ^a a$ ^$ ^*$ ^+a$ ^(?=a)b$ ^(?<n>a)$ ^(?:a|b)$ ^(a)\1$ ^\bword$ ^a|b$ ^(a$ ^[]$ ^[a$ ^[z-a]$ ^"$
      ^\\$ ^a{501}$ ^a{3,2}$ ^a{,3}$ ^a{0}$ ^a**$ ^a+?$ ^\x41$ ^\p{L}$ ^a^b$ ^\s$ ^[\D]$`
    for (const pattern of ["", ...left.split(/\s+/)]) assert.isUndefined(written(pattern), pattern)
    assert.deepStrictEqual(sent({ type: "string", pattern: `^${"a".repeat(511)}$` }), {
      schema: text,
      relaxed: ["pattern"]
    })
  })
})
