import { assert, describe, it } from "@effect/vitest"
import type { Json } from "../../../../../src/domain/Inference.ts"
import { openaiChat } from "../../../../../src/http/dialect/openai/dialect.ts"
import { cap, decoding } from "../../decoding.ts"
import { picture } from "../../../../support/pictures.ts"

const { accepted, refused } = decoding(openaiChat)
const user = { role: "user", content: "hi" }
const chat = (more: { readonly [key: string]: Json } = {}): Json => ({
  model: "m",
  messages: [user],
  ...more
})
const tool = (name: string) => ({ type: "function", function: { name, parameters: { type: "object" } } })

describe("POST /v1/chat/completions, the request", () => {
  it("when stream is absent, then the answer is not streamed", () => {
    assert.isFalse(accepted(chat()).stream)
    assert.isFalse(accepted(chat({ stream: null })).stream)
    assert.isTrue(accepted(chat({ stream: true })).stream)
  })

  it("when the bound is given by either name, then it is taken, and the newer name wins", () => {
    assert.strictEqual(accepted(chat({ max_tokens: 50 })).maxTokens, 50)
    assert.strictEqual(accepted(chat({ max_tokens: 50, max_completion_tokens: 60 })).maxTokens, 60)
    assert.strictEqual(accepted(chat({ max_tokens: cap + 1, max_completion_tokens: 60 })).maxTokens, 60)
    assert.strictEqual(accepted(chat({ max_tokens: 50, max_completion_tokens: -1 })).maxTokens, 50)
    for (const field of ["max_tokens", "max_completion_tokens"]) {
      for (const value of [0, cap + 1, 1.5, "5"]) {
        assert.include(refused(chat({ [field]: value })), `${field}: expected`, `${field}=${value}`)
      }
    }
  })

  it("when a wish cannot be honoured, then it is refused", () => {
    const cases: ReadonlyArray<readonly [Json, string]> = [
      [chat({ n: 2 }), "n: expected 1"],
      [chat({ messages: [] }), "messages"],
      [{ model: "m" }, "messages: missing"],
      [chat({ messages: [{ role: "user" }] }), "messages.0.content: missing"],
      [chat({ stop: ["a", 1] }), "stop"],
      [chat({ response_format: { type: "json_schema" } }), "response_format"],
      [chat({ response_format: { type: "json_schema", json_schema: { name: "x" } } }), "response_format"],
      [chat({ modalities: ["audio"] }), "modalities: only text is written here"],
      [chat({ tools: [{ type: "web_search" }] }), "tools.0.type: expected"],
      [
        chat({ tools: [tool("f")], tool_choice: { type: "function", function: { name: "g" } } }),
        "tool_choice.function.name"
      ],
      [chat({ reasoning_effort: "huge" }), "reasoning_effort: expected"],
      ...[
        "http://169.254.169.254/",
        "file:///etc/passwd",
        "data:image/gif;base64,AAAA",
        "data:image/png;base64,@@@@",
        "data:text/html;base64,AAAA"
      ]
        .flatMap((url): ReadonlyArray<Json> => [{ url }, url])
        .map((image): readonly [Json, string] => [
          chat({ messages: [{ role: "user", content: [{ type: "image_url", image_url: image }] }] }),
          "messages.0.content"
        ])
    ]
    for (const [json, detail] of cases) assert.include(refused(json), detail, JSON.stringify(json))
  })

  it("when an assistant's message is empty, then it is accepted, as clients repeat what they got", () => {
    const thought = { role: "assistant", content: null, reasoning: "hm", refusal: null }
    const request = accepted(chat({ messages: [user, thought, { role: "assistant" }, user] }))
    assert.deepStrictEqual(request.body["messages"], [
      user,
      { role: "assistant", content: "", thinking: "hm" },
      { role: "assistant", content: "" },
      user
    ])
    assert.include(
      refused(chat({ messages: [{ role: "user", content: null }] })),
      "messages.0.content: missing"
    )
  })

  it("when sampling and formats are given, then they are written in the backend's names", () => {
    const schema = { type: "object", properties: { a: { type: "string" } } }
    const request = accepted(
      chat({
        temperature: 0.5,
        top_p: 0.9,
        seed: 7,
        stop: "a",
        frequency_penalty: 1,
        presence_penalty: -1,
        response_format: { type: "json_schema", json_schema: { name: "x", schema } },
        reasoning_effort: "minimal"
      })
    )
    assert.deepStrictEqual(request.options, {
      temperature: 0.5,
      top_p: 0.9,
      frequency_penalty: 1,
      presence_penalty: -1,
      seed: 7,
      stop: ["a"]
    })
    assert.deepStrictEqual(request.body["format"], schema)
    assert.strictEqual(request.body["think"], "low")
    assert.strictEqual(accepted(chat({ response_format: { type: "json_object" } })).body["format"], "json")
    assert.notProperty(accepted(chat()).options, "temperature")
    assert.strictEqual(accepted(chat({ reasoning_effort: "none" })).body["think"], false)
    const think = (fields: { readonly [name: string]: Json }) => accepted(chat(fields)).body["think"]
    assert.strictEqual(think({ enable_thinking: false, reasoning_effort: "high" }), false)
    assert.strictEqual(think({ chat_template_kwargs: { enable_thinking: false, other: 1 } }), false)
    assert.strictEqual(think({ enable_thinking: true, reasoning_effort: "high" }), "high")
    assert.strictEqual(think({ chat_template_kwargs: { enable_thinking: true } }), true)
    assert.isUndefined(think({ chat_template_kwargs: {} }))
  })

  it("when messages have parts, images, roles and tool results, then they become the backend's form", () => {
    const png = picture
    const request = accepted(
      chat({
        messages: [
          { role: "developer", content: "be brief" },
          {
            role: "user",
            content: [
              { type: "text", text: "a" },
              { type: "image_url", image_url: { url: `data:image/png;base64,${png}` } },
              { type: "text", text: "b" }
            ]
          },
          {
            role: "assistant",
            content: null,
            tool_calls: [{ id: "c1", type: "function", function: { name: "f", arguments: "" } }]
          },
          { role: "tool", tool_call_id: "c1", content: [{ type: "text", text: "42" }] }
        ]
      })
    )
    assert.deepStrictEqual(request.body["messages"], [
      { role: "system", content: "be brief" },
      { role: "user", content: "a\n\nb", images: [png] },
      { role: "assistant", content: "", tool_calls: [{ id: "c1", function: { name: "f", arguments: {} } }] },
      { role: "tool", content: "42", tool_call_id: "c1", tool_name: "f" }
    ])
  })

  it("when tool_choice is none, then no tools are sent; when it names one, then that one; else all", () => {
    const names = (choice: Json) => {
      const tools = accepted(chat({ tools: [tool("f"), tool("g")], tool_choice: choice })).body["tools"]
      return Array.isArray(tools) ? tools.length : 0
    }
    assert.deepStrictEqual([names("none"), names("auto"), names("required"), names(tool("g"))], [0, 2, 2, 1])
  })
})
