import { assert, describe, it } from "@effect/vitest"
import type { Json, JsonObject } from "../../../../src/domain/Inference.ts"
import { nativeChat } from "../../../../src/http/dialect/native/dialect.ts"
import { messages } from "../../../../src/http/dialect/messages/dialect.ts"
import { openaiChat } from "../../../../src/http/dialect/openai/dialect.ts"
import { responses } from "../../../../src/http/dialect/responses/dialect.ts"
import { maxToolDepth, maxTools, maxToolValues } from "../../../../src/http/dialect/tools.ts"
import { decoding } from "../decoding.ts"

const tool = (parameters: JsonObject): JsonObject => ({
  type: "function",
  function: { name: "f", description: "does it", parameters }
})
const asking = (tools: ReadonlyArray<Json>) => ({
  model: "m",
  messages: [{ role: "user", content: "x" }],
  tools
})
const nested = (levels: number): JsonObject =>
  levels <= 1 ? { type: "object" } : { properties: levels === 2 ? {} : { a: nested(levels - 2) } }
const values = (count: number): JsonObject => ({ enum: Array.from({ length: count - 2 }, (_, i) => i) })

describe("tools", () => {
  for (const [surface, { accepted, refused }] of Object.entries({
    native: decoding(nativeChat),
    openai: decoding(openaiChat)
  })) {
    it(`when tools are within the bounds, then their parameters are forwarded unchanged (${surface})`, () => {
      const patterned = {
        type: "object",
        properties: { a: { type: "string", pattern: "^(?!x)(?:a|b)$", minLength: 5000 }, b: { not: {} } },
        oneOf: []
      }
      for (const parameters of [patterned, nested(maxToolDepth), values(maxToolValues)]) {
        const { body } = accepted(asking([tool({}), tool(parameters)]))
        assert.deepStrictEqual(body["tools"], [tool({}), tool(parameters)])
      }
      accepted(asking(Array.from({ length: maxTools }, () => tool({}))))
    })

    it(`when tools are beyond a bound, then they are refused (${surface})`, () => {
      assert.strictEqual(
        refused(asking(Array.from({ length: maxTools + 1 }, () => tool({})))),
        "tools: expected at most 128"
      )
      assert.strictEqual(
        refused(asking([tool({}), tool(nested(maxToolDepth + 1))])),
        "tools: function.parameters of f: expected at most 32 levels"
      )
      assert.strictEqual(
        refused(asking([tool(values(maxToolValues + 1))])),
        "tools: function.parameters of f: expected at most 4096 values"
      )
    })
  }

  it("when a tool is beyond a bound on an extra surface, then the refusal has its name there", () => {
    const parameters = nested(maxToolDepth + 1)
    const asked = { model: "m", max_tokens: 8, messages: [{ role: "user", content: "x" }], input: "x" }
    const inNamespace = { type: "namespace", name: "n", tools: [{ type: "function", name: "f", parameters }] }
    assert.strictEqual(
      decoding(responses).refused({ ...asked, tools: [{ type: "web_search" }, inNamespace] }),
      "tools: parameters of n.f: expected at most 32 levels"
    )
    assert.strictEqual(
      decoding(messages).refused({ ...asked, tools: [{ name: "f", input_schema: parameters }] }),
      "tools: input_schema of f: expected at most 32 levels"
    )
  })
})
