import { assert, describe, it } from "@effect/vitest"
import type { Json } from "../../../../../src/domain/Inference.ts"
import { nativeChat } from "../../../../../src/http/dialect/native/dialect.ts"
import { cap, decoding } from "../../decoding.ts"

const { accepted, refused } = decoding(nativeChat)
const chat = (more: { readonly [key: string]: Json } = {}): Json => ({
  model: "m",
  messages: [{ role: "user", content: "hi" }],
  ...more
})

describe("POST /api/chat, the request", () => {
  it("when a field is wrong, then the error names the field and what is expected there, never the value", () => {
    const cases: ReadonlyArray<readonly [Json, string]> = [
      [null, "body: expected object"],
      [[], "body: expected object"],
      ["x", "body: expected object"],
      [{}, "model: missing"],
      [{ Model: "a" }, "model: missing"],
      [{ "mode\u017f": "a" }, "model: missing"],
      [chat({ model: 1 }), "model: expected string"],
      [chat({ model: "" }), "model: expected"],
      [chat({ stream: "true" }), "stream: expected boolean"],
      [chat({ messages: "secret" }), "messages: expected array"],
      [chat({ messages: [{ role: "r".repeat(65), content: "secret" }] }), "messages.0.role: expected"],
      [
        chat({ messages: [{ role: "user", content: [{ type: "text", text: "secret" }] }] }),
        "messages.0.content: expected string"
      ],
      [
        chat({ messages: [{ role: "user", content: "", images: ["data:image/png;base64,AAAA"] }] }),
        "messages.0.images.0: expected base64"
      ],
      [chat({ format: "xml" }), "format: expected"],
      [chat({ format: 5 }), "format: expected"],
      [chat({ format: [] }), "format: expected"],
      [chat({ format: true }), "format: expected"],
      [chat({ think: "extreme" }), "think: expected"],
      [chat({ top_logprobs: 21 }), "top_logprobs: expected"],
      [chat({ top_logprobs: -1 }), "top_logprobs: expected"],
      [chat({ top_logprobs: 1.5 }), "top_logprobs: expected"],
      [chat({ options: { stop: "x" } }), "options.stop: expected array"],
      [chat({ options: { temperature: "hot" } }), "options.temperature: expected"],
      [chat({ options: { num_predict: "10" } }), "options.num_predict: expected"],
      [chat({ options: { num_predict: 12.5 } }), "options.num_predict: expected"],
      [chat({ options: { num_predict: 0 } }), "options.num_predict: expected a whole number from 1 to 65536"],
      [
        chat({ options: { num_predict: cap + 1 } }),
        "options.num_predict: expected a whole number from 1 to 65536"
      ]
    ]
    for (const [json, detail] of cases) {
      const sentence = refused(json)
      assert.include(sentence, detail, JSON.stringify(json))
      assert.notInclude(sentence, "secret")
    }
  })

  it("when a field is null, then it counts as absent, and a request streams unless it says otherwise", () => {
    const request = accepted(
      chat({
        stream: null,
        format: null,
        tools: null,
        think: null,
        options: null,
        top_logprobs: null,
        truncate: null
      })
    )
    assert.isTrue(request.stream)
    assert.deepStrictEqual(request.body, { messages: [{ role: "user", content: "hi" }] })
    assert.deepStrictEqual(request.options, {})
    assert.isFalse(accepted(chat({ stream: false })).stream)
  })

  it("when a field has a meaning for one answer, then it is sent", () => {
    const fields = {
      format: { type: "object", properties: { a: { type: "string" } } },
      logprobs: true,
      top_logprobs: 20,
      think: "max"
    }
    assert.deepInclude(accepted(chat(fields)).body, fields)
    assert.strictEqual(accepted(chat({ format: "json" })).body["format"], "json")
    assert.notProperty(accepted(chat({ format: "" })).body, "format")
  })

  it("when num_ctx is given, then it is one of three steps where the operator allows it, and else left out", () => {
    const sent = (numCtxCap: number, num_ctx: number) =>
      decoding(nativeChat, { numCtxCap }).accepted(chat({ options: { num_ctx } })).options
    for (const [asked, step] of [
      [-1, 2048],
      [2048, 2048],
      [2049, 4096],
      [5000, 8192],
      [1e6, 8192]
    ] as const)
      assert.deepStrictEqual(sent(8192, asked), { num_ctx: step })
    assert.deepStrictEqual(sent(4, 1), { num_ctx: 4 })
  })

  it("when the client gives a bound, then it is taken if it is one", () => {
    assert.strictEqual(accepted(chat({ options: { num_predict: cap } })).maxTokens, cap)
    for (const absent of [-1, -2, null]) {
      assert.isUndefined(accepted(chat({ options: { num_predict: absent } })).maxTokens)
    }
    assert.notProperty(accepted(chat({ options: { num_predict: 5 } })).options, "num_predict")
  })

  it("when tools, calls and results are given, then their known fields are passed on", () => {
    const request = accepted({
      model: "m",
      messages: [
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "c1", type: "function", function: { name: "f", arguments: { a: 1 }, index: 3 } }]
        },
        { role: "tool", content: "42", tool_name: "f", tool_call_id: "c1", secret: 1 }
      ],
      tools: [
        {
          type: "function",
          function: { name: "f", parameters: { type: "object", properties: {} }, strict: true }
        }
      ]
    })
    assert.deepStrictEqual(request.body, {
      messages: [
        {
          role: "assistant",
          tool_calls: [{ id: "c1", function: { name: "f", arguments: { a: 1 } } }],
          content: ""
        },
        { role: "tool", content: "42", tool_name: "f", tool_call_id: "c1" }
      ],
      tools: [{ type: "function", function: { name: "f", parameters: { type: "object", properties: {} } } }]
    })
  })
})
