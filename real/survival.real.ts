/** Requests that ended a real server's process when they reached it: they are answered, and its processes stay the same. */
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { call, newKey } from "../test/support/Gateway.ts"
import { layerOwnGateway } from "./RealGateway.ts"
import { OwnOllama } from "./RealOllama.ts"

const messages = [{ role: "user", content: "x" }]
const options = { num_predict: 20 }
const brief = { num_predict: 1 }

const ofText = (text: Readonly<Record<string, unknown>>) => ({
  type: "object",
  properties: { value: { type: "string", ...text } },
  required: ["value"],
  additionalProperties: false
})

/** As zod writes an email address and a date. */
const email =
  "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"
const date =
  "^(?:(?:\\d\\d[2468][048]|\\d\\d[13579][26])-02-29|\\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\\d|3[01]))$"

const schemas: Readonly<Record<string, unknown>> = {
  "zod's email": ofText({ format: "email", pattern: email }),
  "zod's date": ofText({ format: "date", pattern: date }),
  "a group without a capture": ofText({ pattern: "^(?:a|b)$" }),
  "a quantifier first": ofText({ pattern: "^+a$" }),
  "digits by class": ofText({ pattern: "^\\d{5}$" }),
  "words by class": ofText({ pattern: "^\\w+$" }),
  "no anchors": ofText({ pattern: "[0-9]{5}" }),
  "a very long text": ofText({ minLength: 5000 }),
  "very many items": { type: "array", items: { type: "string" }, maxItems: 100_000 },
  "no alternatives": { oneOf: [] },
  not: { not: { type: "string" } },
  "if and else": { if: { type: "string" }, else: { minimum: 1 } },
  "a property that is true": { type: "object", properties: { a: true } },
  "a reference to nothing": { $ref: "#/$defs/none" },
  "an unknown type": { type: "text" },
  "a reference that leads to itself": { $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/a" } } },
  "a reference that leads to itself, of a part": {
    allOf: [{ $ref: "#/$defs/a" }, { type: "object", properties: { b: { type: "string" } } }],
    $defs: { a: { $ref: "#/$defs/a" } }
  },
  "very many optional properties": {
    type: "object",
    properties: Object.fromEntries(Array.from({ length: 2000 }, (_, i) => [`p${i}`, { type: "null" }]))
  },
  "a name of very many signs": { type: "object", properties: { ["!".repeat(100_000)]: { type: "null" } } }
}

const bodies = [
  ...Object.entries(schemas).flatMap(([what, schema]) => [
    { what, path: "/api/chat", body: { model: "plain", messages, stream: false, format: schema, options } },
    {
      what: `${what}, on /v1`,
      path: "/v1/chat/completions",
      body: {
        model: "plain",
        messages,
        max_tokens: 20,
        response_format: { type: "json_schema", json_schema: { name: "x", schema } }
      }
    }
  ]),
  ...[[99_999_999], [313], [-1], [1, 2, 3]].map((context) => ({
    what: `context ${context.join()}`,
    path: "/api/generate",
    body: { model: "plain", prompt: "x", stream: false, context, options }
  })),
  // At the bound of characters in a row …
  ...["7", "!", "a", " ", "a\u0301"].flatMap((unit) => {
    const text = unit.repeat(4096 / unit.length)
    const what = `4096 of ${JSON.stringify(unit)}`
    return [
      {
        what,
        path: "/api/chat",
        body: { model: "split", messages: [{ role: "user", content: text }], stream: false, options: brief }
      },
      { what: `${what}, embedded`, path: "/api/embed", body: { model: "embed", input: text } }
    ]
  }),
  // … and beyond it.
  ...["7", "!", "a", "A", "漢", " ", "\n", "🙂", "\u0301", "a\u0301", "!\u0301"].flatMap((unit) => {
    const text = unit.repeat(Math.floor(120_000 / Buffer.byteLength(unit)))
    const what = `120 kB of ${JSON.stringify(unit)}`
    return ["plain", "split"].flatMap((model) => [
      {
        what: `${what}, ${model}`,
        path: "/api/chat",
        body: { model, messages: [{ role: "user", content: text }], stream: false, options: brief }
      },
      {
        what: `${what}, ${model}, raw`,
        path: "/api/generate",
        body: { model, prompt: text, raw: true, stream: false, options: brief }
      },
      { what: `${what}, embedded`, path: "/api/embed", body: { model: "embed", input: text } }
    ])
  }),
  ...["7", "\n"].map((unit) => ({
    what: `${JSON.stringify(unit)} in many messages`,
    path: "/api/chat",
    body: {
      model: "split",
      messages: Array.from({ length: 60 }, () => ({ role: "user", content: unit.repeat(2000) })),
      stream: false,
      options: brief
    }
  })),
  ...[
    { repeat_last_n: 1_500_000_000 },
    { num_keep: 1_500_000_000 },
    { top_k: 2_000_000_000 },
    { repeat_penalty: -1e38 },
    { frequency_penalty: -1e38 },
    { presence_penalty: -3.4e38 },
    { temperature: 1e-38 }
  ].map((option) => ({
    what: JSON.stringify(option),
    path: "/api/chat",
    body: { model: "plain", messages, stream: false, options: { ...options, ...option } }
  }))
]

layer(layerOwnGateway(), { excludeTestServices: true, timeout: 600_000 })("a real server survives", (it) => {
  it.effect(
    "when each request that used to end the server is sent, then the server keeps its processes",
    () =>
      Effect.gen(function* () {
        const server = yield* OwnOllama
        const { secret } = yield* newKey()
        const first = yield* call("/api/chat", {
          secret,
          body: { model: "plain", messages, stream: false, options }
        })
        assert.strictEqual(first.status, 200)
        const models = [
          { path: "/api/generate", body: { model: "split", prompt: "x", stream: false, options } },
          { path: "/api/embed", body: { model: "embed", input: "x" } }
        ]
        for (const { body, path } of models)
          assert.strictEqual((yield* call(path, { secret, body })).status, 200)
        const before = { pid: server.pid(), runners: server.runners() }
        const wrong: Array<string> = []
        // A key may be refused a hundred times a second.
        const keys = yield* Effect.replicateEffect(newKey(), 8)
        for (const [i, { body, path, what }] of bodies.entries()) {
          const { status, text } = yield* call(path, {
            secret: keys[i % keys.length]?.secret ?? secret,
            body
          })
          if (status !== 200 && status !== 400) wrong.push(`${what}: ${status} ${text}`)
          const after = { pid: server.pid(), runners: server.runners() }
          if (JSON.stringify(after) !== JSON.stringify(before)) wrong.push(`${what}: another process`)
        }
        assert.deepStrictEqual(wrong, [])
        const last = yield* call("/api/chat", {
          secret,
          body: { model: "plain", messages, stream: false, options }
        })
        assert.strictEqual(last.status, 200)
      })
  )
})
