import { assert, describe, it } from "@effect/vitest"
import type { Json } from "../../../../../src/domain/Inference.ts"
import { messages, messagesCount } from "../../../../../src/http/dialect/messages/dialect.ts"
import { cap, decoding } from "../../decoding.ts"
import { maxListed } from "../../../../../src/http/dialect/tools.ts"
import { picture } from "../../../../support/pictures.ts"

const { accepted, refused } = decoding(messages)
const asked = (more: { readonly [key: string]: Json } = {}): Json => ({
  model: "m",
  max_tokens: 50,
  messages: [{ role: "user", content: "hi" }],
  ...more
})
const said = (...conversation: ReadonlyArray<Json>) =>
  accepted(asked({ messages: conversation })).body["messages"]
const tool = (name: string, more: { readonly [key: string]: Json } = {}): Json => ({
  name,
  description: "d",
  input_schema: { type: "object" },
  ...more
})
const native = (name: string): Json => ({
  type: "function",
  function: { name, description: "d", parameters: { type: "object" } }
})
const image = { type: "image", source: { type: "base64", media_type: "image/png", data: picture } }

describe("POST /v1/messages, the request", () => {
  it("when Claude Code asks, then everything that it means is sent, and nothing else", () => {
    const request = accepted(
      asked({
        max_tokens: 32_000,
        stream: true,
        system: [
          { type: "text", text: "x-anthropic-billing-header: cc_version=2.1.330.440; cch=1;" },
          { type: "text", text: "You are ", cache_control: { type: "ephemeral" } },
          { type: "text", text: "helpful." }
        ],
        messages: [
          { role: "user", content: [{ type: "text", text: "hi", cache_control: { type: "ephemeral" } }] },
          { role: "system", content: "be brief" }
        ],
        tools: [tool("Edit", { defer_loading: true }), { type: "web_search_20250305", name: "web_search" }],
        metadata: { user_id: '{"device_id":"d","session_id":"s"}' },
        thinking: { type: "adaptive", display: "omitted" },
        context_management: { edits: [{ type: "clear_thinking_20251015", keep: "all" }] },
        output_config: { effort: "high" }
      })
    )
    const { promptBytes: _, promptEstimate: __, ...rest } = request
    assert.deepStrictEqual(rest, {
      kind: "chat",
      model: "m",
      stream: true,
      body: {
        messages: [
          { role: "system", content: "You are helpful." },
          { role: "user", content: "hi" },
          { role: "system", content: "be brief" }
        ],
        tools: [native("Edit")],
        think: "high"
      },
      options: {},
      thinkIfAble: true,
      maxTokens: 32_000
    })
  })

  it("when a system text begins with the billing line, then the line goes and the text after it stays", () => {
    const line = "x-anthropic-billing-header: cc_version=2.1.330.440; cc_entrypoint=cli;"
    const systems: ReadonlyArray<readonly [Json, ReadonlyArray<string>]> = [
      [line, []],
      [`${line}\nYou help.`, ["You help."]],
      [[{ type: "text", text: line }], []],
      ["You help.", ["You help."]],
      [`You read ${line}`, [`You read ${line}`]]
    ]
    for (const [system, kept] of systems) {
      assert.deepStrictEqual(accepted(asked({ system })).body["messages"], [
        ...kept.map((content) => ({ role: "system", content })),
        { role: "user", content: "hi" }
      ])
    }
    assert.deepStrictEqual(said({ role: "system", content: line }, { role: "user", content: line }), [
      { role: "user", content: line }
    ])
  })

  it("when a conversation has blocks of all kinds, then calls and their results are the messages of Ollama", () => {
    const messagesSent = said(
      { role: "user", content: [{ type: "text", text: "a" }, image, { type: "text", text: "b" }] },
      {
        role: "assistant",
        content: [
          { type: "thinking", thinking: "hm", signature: "s" },
          { type: "redacted_thinking", data: "x" },
          { type: "text", text: "I look" },
          { type: "tool_use", id: "t1", name: "Read", input: { path: "x" } },
          { type: "tool_use", id: "t2", name: "List", input: {} }
        ]
      },
      {
        role: "user",
        content: [
          { type: "text", text: "go on" },
          {
            type: "tool_result",
            tool_use_id: "t1",
            content: [{ type: "text", text: "r" }, image]
          },
          { type: "tool_result", tool_use_id: "t2", content: "no such folder", is_error: true }
        ]
      },
      {
        role: "assistant",
        content: [
          { type: "server_tool_use", id: "w", name: "web_search", input: { query: "q" } },
          {
            type: "web_search_tool_result",
            tool_use_id: "w",
            content: [{ type: "web_search_result", title: "T", url: "https://t" }]
          }
        ]
      },
      { role: "assistant", content: [{ type: "redacted_thinking", data: "x" }] }
    )
    assert.deepStrictEqual(messagesSent, [
      { role: "user", content: "ab", images: [picture] },
      {
        role: "assistant",
        content: "I look",
        thinking: "hm",
        tool_calls: [
          { id: "t1", function: { name: "Read", arguments: { path: "x" } } },
          { id: "t2", function: { name: "List", arguments: {} } }
        ]
      },
      { role: "tool", content: "r", images: [picture], tool_call_id: "t1", tool_name: "Read" },
      { role: "tool", content: "Error: no such folder", tool_call_id: "t2", tool_name: "List" },
      { role: "user", content: "go on" },
      {
        role: "assistant",
        content: "",
        tool_calls: [{ id: "w", function: { name: "web_search", arguments: { query: "q" } } }]
      },
      { role: "tool", content: "- T: https://t\n", tool_call_id: "w", tool_name: "web_search" }
    ])
  })

  it("when a message has documents or search results, then the model sees their texts and images at their place", () => {
    const text = (data: string) => ({
      type: "document",
      source: { type: "text", media_type: "text/plain", data }
    })
    const found = {
      type: "search_result",
      title: "T",
      source: "https://t",
      content: [{ type: "text", text: "f" }],
      citations: { enabled: true }
    }
    const content = {
      type: "document",
      title: "Report",
      context: "of May",
      source: { type: "content", content: [{ type: "text", text: "c" }, image] }
    }
    assert.deepStrictEqual(
      said({
        role: "user",
        content: [
          { type: "text", text: "a" },
          text("The code is 4711."),
          content,
          found,
          { type: "text", text: "b" }
        ]
      }),
      [
        {
          role: "user",
          content: "a\nThe code is 4711.\n\nReport\nof May\nc\n\nT\nhttps://t\nf\nb",
          images: [picture]
        }
      ]
    )
    const call = { type: "tool_use", id: "t", name: "Read", input: {} }
    const result = { type: "tool_result", tool_use_id: "t", content: [text("d"), found] }
    assert.deepStrictEqual(
      said({ role: "assistant", content: [call] }, { role: "user", content: [result] }),
      [
        {
          role: "assistant",
          content: "",
          tool_calls: [{ id: "t", function: { name: "Read", arguments: {} } }]
        },
        { role: "tool", content: "\nd\n\nT\nhttps://t\nf\n", tool_call_id: "t", tool_name: "Read" }
      ]
    )
  })

  it("when sampling options are given, then they are sent under the names of Ollama, and none is added", () => {
    assert.deepStrictEqual(
      accepted(asked({ temperature: 0.5, top_p: 0.9, top_k: 3, stop_sequences: ["a", "b"] })).options,
      { temperature: 0.5, top_p: 0.9, top_k: 3, stop: ["a", "b"] }
    )
    assert.deepStrictEqual(accepted(asked({ stop_sequences: [] })).options, {})
  })

  it("when tools are chosen, then none, one or all are sent", () => {
    const tools = [tool("f"), tool("g", { type: "custom" }), { type: "web_search_20990101", name: "s" }]
    const sent = (choice: Json) => accepted(asked({ tools, tool_choice: choice })).body["tools"]
    assert.isUndefined(sent({ type: "none" }))
    assert.deepStrictEqual(sent({ type: "tool", name: "g" }), [native("g")])
    for (const type of ["auto", "any"])
      assert.deepStrictEqual(sent({ type, disable_parallel_tool_use: true }), [native("f"), native("g")])
    assert.isUndefined(
      accepted(asked({ tools: [{ type: "mcp_toolset", mcp_server_name: "x" }] })).body["tools"]
    )
  })

  it("when the conversation adds and removes tools, then those that are left are sent", () => {
    const change = (type: string, tool: Json) => ({ type, tool })
    const reference = (name: string) => ({ type: "tool_reference", name })
    const changes = [
      change("tool_removal", reference("f")),
      change("tool_addition", { type: "tool_definition", definition: tool("h") }),
      change("tool_removal", reference("g")),
      change("tool_addition", reference("g"))
    ]
    const body = asked({
      tools: [tool("f"), tool("g")],
      messages: [
        { role: "user", content: "hi" },
        { role: "system", content: changes }
      ]
    })
    assert.deepStrictEqual(accepted(body).body["tools"], [native("g"), native("h")])
    const many = { type: "tool_definition", definition: { type: "mcp_toolset", mcp_server_name: "x" } }
    const added = Array.from({ length: maxListed }, () => change("tool_addition", many))
    assert.include(
      refused(
        asked({
          tools: [tool("f")],
          messages: [{ role: "user", content: [{ type: "text", text: "a" }, ...added] }]
        })
      ),
      "tools: expected at most 1024"
    )
  })

  it("when thinking is asked for, then its type decides, and else the effort", () => {
    const think = (thinking: Json, effort: Json = null) =>
      accepted(asked({ thinking, output_config: { effort } })).body["think"]
    assert.isTrue(think({ type: "enabled", budget_tokens: 1024 }, "low"))
    assert.isFalse(think({ type: "disabled" }, "high"))
    assert.strictEqual(think({ type: "adaptive" }, "xhigh"), "max")
    assert.strictEqual(think(null, "minimal"), "low")
    assert.strictEqual(think(null, "max"), "max")
    assert.isUndefined(think({ type: "adaptive" }, "enormous"))
    assert.isUndefined(think(null))
  })

  it("when a schema is asked for, then it is the format", () => {
    const schema = { type: "object", properties: { a: { type: "string" } } }
    const format = { type: "json_schema", schema }
    assert.deepStrictEqual(accepted(asked({ output_config: { format } })).body["format"], schema)
  })

  it("when metadata name a user, then it is the end user, unless it is JSON", () => {
    const endUser = (user_id: Json) => accepted(asked({ metadata: { user_id } })).endUser
    assert.strictEqual(endUser("ada"), "ada")
    for (const none of ["", null, '{"device_id":"d"}']) assert.isUndefined(endUser(none))
  })

  it("when a bound is above the cap, then it is lowered and the answer says so; at the cap nothing is said", () => {
    assert.include(accepted(asked({ max_tokens: cap + 1 })), { maxTokens: cap, loweredTo: cap })
    const { loweredTo, maxTokens } = accepted(asked({ max_tokens: cap }))
    assert.deepStrictEqual([maxTokens, loweredTo], [cap, undefined])
  })

  it("when a request cannot be honoured, then the refusal names the field", () => {
    const content = (...blocks: ReadonlyArray<Json>): Json =>
      asked({ messages: [{ role: "user", content: blocks }] })
    const cases: ReadonlyArray<readonly [Json, string]> = [
      [{ model: "m", messages: [{ role: "user", content: "hi" }] }, "max_tokens: missing"],
      [asked({ max_tokens: 0 }), "max_tokens: expected"],
      [asked({ max_tokens: -1 }), "max_tokens: expected"],
      [asked({ messages: [] }), "messages"],
      [asked({ messages: [{ role: "user", content: "" }] }), "messages: expected one with content"],
      [asked({ messages: [{ role: "tool", content: "x" }] }), "messages.0.role: expected"],
      [content({ type: "text" }), "messages.0.content.0.text: missing"],
      [content({ type: "tool_use", name: "f" }), "messages.0.content.0.id: missing"],
      [content({ type: "tool_use", id: "i", name: "f", input: [] }), "messages.0.content.0.input: expected"],
      [
        content({ type: "tool_result", tool_use_id: "t", content: [{ type: "text" }] }),
        "messages.0.content.0.content.0.text: missing"
      ],
      [asked({ tools: [{ input_schema: {} }] }), "tools.0.name: missing"],
      [asked({ tools: [tool("f")], tool_choice: { type: "tool", name: "g" } }), "tool_choice.name: expected"],
      [asked({ temperature: -1 }), "temperature: expected"],
      [asked({ stop_sequences: ["x".repeat(257)] }), "stop_sequences.0"],
      [asked({ output_config: { format: { type: "json_schema" } } }), "output_config.format.schema: missing"]
    ]
    for (const [body, problem] of cases) assert.include(refused(body), problem, JSON.stringify(body))
  })

  it("when listed tools are too many, then they are refused, also those that are dropped", () => {
    const others = (count: number) => Array.from({ length: count }, () => ({ type: "web_search_20250305" }))
    assert.isUndefined(accepted(asked({ tools: others(maxListed) })).body["tools"])
    assert.include(refused(asked({ tools: others(maxListed + 1) })), "tools: expected")
  })

  it("when tokens are counted, then it is the estimate that the same request would hold, without a bound", () => {
    const count = decoding(messagesCount)
    const prompt = {
      model: "m",
      system: "You help.",
      messages: [{ role: "user", content: [{ type: "text", text: "Hello world, how are you?" }, image] }],
      tools: [tool("f")]
    }
    const counted = count.accepted(prompt)
    assert.deepStrictEqual([counted.promptEstimate, counted.maxTokens], [0, 0])
    const { promptEstimate } = accepted({ ...prompt, max_tokens: 1 })
    assert.isAbove(promptEstimate, 1000)
    assert.deepStrictEqual(messagesCount.encode(counted), [JSON.stringify({ input_tokens: promptEstimate })])
  })
})
