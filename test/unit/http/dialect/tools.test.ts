import { assert, describe, it } from "@effect/vitest"
import type { Json, JsonObject } from "../../../../src/domain/Inference.ts"
import { nativeChat } from "../../../../src/http/dialect/native/dialect.ts"
import { messages } from "../../../../src/http/dialect/messages/dialect.ts"
import { openaiChat } from "../../../../src/http/dialect/openai/dialect.ts"
import { responses } from "../../../../src/http/dialect/responses/dialect.ts"
import { maxListed, maxToolDepth, maxToolValues } from "../../../../src/http/dialect/tools.ts"
import { decoding } from "../decoding.ts"

const toolsMax = 128
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
      accepted(asking(Array.from({ length: toolsMax }, () => tool({}))))
    })

    it(`when tools are beyond a bound, then they are refused (${surface})`, () => {
      assert.strictEqual(
        refused(asking(Array.from({ length: toolsMax + 1 }, () => tool({})))),
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

  const offers = (count: number, from: number, deferred: boolean) =>
    Array.from({ length: count }, (_, i) => ({ name: `t${from + i}`, deferred }))
  type Offers = ReturnType<typeof offers>

  /** A request with tools, and a call of `called` in its history. */
  const listing: ReadonlyArray<
    readonly [Parameters<typeof decoding>[0], (tools: Offers, called: string) => Json]
  > = [
    ...[nativeChat, openaiChat].map(
      (dialect) =>
        [
          dialect,
          (tools: Offers, called: string): Json => ({
            model: "m",
            messages: [
              { role: "user", content: "x" },
              { role: "assistant", content: "", tool_calls: [{ function: { name: called } }] }
            ],
            tools: tools.map(({ deferred, name }) => ({
              type: "function",
              function: { name },
              defer_loading: deferred
            }))
          })
        ] as const
    ),
    [
      responses,
      (tools, called) => ({
        model: "m",
        input: [{ type: "function_call", call_id: "c", name: called }],
        tools: tools.map(({ deferred, name }) => ({ type: "function", name, defer_loading: deferred }))
      })
    ],
    [
      messages,
      (tools, called) => ({
        model: "m",
        max_tokens: 8,
        messages: [
          { role: "user", content: "x" },
          {
            role: "user",
            content: [
              {
                type: "tool_result",
                tool_use_id: "s",
                content: [{ type: "tool_reference", tool_name: called }]
              }
            ]
          }
        ],
        tools: tools.map(({ deferred, name }) => ({ name, defer_loading: deferred }))
      })
    ]
  ]

  it("when tools may wait, then they fill the room that the others leave, those first that the conversation mentions", () => {
    const sent = (count: number) =>
      Array.from({ length: count }, (_, i) => ({ type: "function", function: { name: `t${i}` } }))
    for (const [dialect, asked] of listing) {
      const { accepted, refused } = decoding(dialect)
      const tools = [...offers(50, 0, false), ...offers(150, 50, true)]
      assert.deepStrictEqual(accepted(asked(tools, "t0")).body["tools"], sent(toolsMax))
      assert.deepStrictEqual(accepted(asked(tools, "t180")).body["tools"], [
        ...sent(toolsMax - 1),
        { type: "function", function: { name: "t180" } }
      ])
      accepted(asked(offers(maxListed, 0, true), "none"))
      assert.include(refused(asked(offers(maxListed + 1, 0, true), "none")), "tools: expected")
      assert.strictEqual(refused(asked(offers(toolsMax + 1, 0, false), "t0")), "tools: expected at most 128")
      const more = decoding(dialect, { toolsMax: 245 })
      assert.lengthOf(Object(more.accepted(asked(offers(245, 0, false), "t0")).body["tools"]), 245)
      assert.strictEqual(more.refused(asked(offers(246, 0, false), "t0")), "tools: expected at most 245")
    }
  })

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
