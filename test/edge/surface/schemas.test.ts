import { assert } from "@effect/vitest"
import { Fake, layerGateway } from "../../support/Gateway.ts"
import { ask, assertRefused, assertWell, chat, generate } from "./asking.ts"
import { inWorld } from "../../support/testWith.ts"

const schema = {
  type: "object",
  properties: {
    email: { type: "string", format: "email", pattern: "^(?!\\.).+@.+$" },
    code: { type: "string", pattern: "^\\d{5}$" }
  },
  required: ["email"]
}
const forwarded = {
  type: "object",
  properties: { email: { type: "string" }, code: { type: "string", pattern: "^[0-9]{5}$" } },
  required: ["email"]
}
const responseFormat = (value: object) => ({
  response_format: { type: "json_schema", json_schema: { name: "n", schema: value } }
})

inWorld(layerGateway())("schemas", (test) => {
  test("when a keyword is left out of a schema, then every answer on either surface names it", function* () {
    for (const [path, body] of [
      ["/api/chat", chat({ format: schema })],
      ["/api/chat", chat({ format: schema, stream: false })],
      ["/api/generate", generate({ format: schema })],
      ["/v1/chat/completions", chat(responseFormat(schema))],
      ["/v1/chat/completions", chat({ ...responseFormat(schema), stream: true })]
    ] as const) {
      const answer = yield* ask(path, body)
      assertWell(answer)
      assert.strictEqual(answer.headers.get("x-schema-relaxed"), "format, pattern", path)
      assert.deepStrictEqual(answer.sent?.["format"], forwarded, path)
    }
    const plain = yield* ask("/api/chat", chat({ format: forwarded }))
    assert.isNull(plain.headers.get("x-schema-relaxed"))
  })

  test("when a schema cannot be passed on, then it is a 400 with the client's own name of the field", function* () {
    const backend = yield* Fake
    const before = backend.requests.length
    for (const bad of [{ oneOf: [] }, { not: {} }, { type: "foo" }, { type: "string", minLength: 5000 }]) {
      assertRefused(yield* ask("/api/chat", chat({ format: bad })), "format.")
      const openai = yield* ask("/v1/chat/completions", chat(responseFormat(bad)))
      assertRefused(openai, "response_format.json_schema.schema.")
    }
    assert.strictEqual(backend.requests.length, before)
  })
})
