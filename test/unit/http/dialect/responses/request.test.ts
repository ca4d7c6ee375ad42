import { assert, describe, it } from "@effect/vitest"
import type { Json } from "../../../../../src/domain/Inference.ts"
import { responses } from "../../../../../src/http/dialect/responses/dialect.ts"
import { maxItems } from "../../../../../src/http/dialect/responses/input.ts"
import { maxListed } from "../../../../../src/http/dialect/tools.ts"
import { picture } from "../../../../support/pictures.ts"
import { cap, decoding } from "../../decoding.ts"

const { accepted, refused } = decoding(responses)
const asked = (more: { readonly [field: string]: Json }) => ({ model: "m", input: "Hi", ...more })
const messagesOf = (input: Json) => accepted({ model: "m", input }).body["messages"]
const weather = { type: "function", name: "weather", description: "d", parameters: { type: "object" } }
const sent = (name: string) => ({
  type: "function",
  function: { name, description: "d", parameters: { type: "object" } }
})
const freeText = (more: { readonly [key: string]: Json }) => ({
  type: "object",
  properties: { input: { type: "string", ...more } },
  required: ["input"]
})

describe("POST /v1/responses, the request", () => {
  it("when Codex begins a session, then the model gets its messages and functions, and nothing else of it", () => {
    const { body, maxTokens, options, stream, thinkIfAble } = accepted({
      model: "m",
      stream: true,
      input: [
        {
          type: "message",
          role: "developer",
          content: [
            { type: "input_text", text: "You are " },
            { type: "input_text", text: "Codex" }
          ]
        },
        { type: "message", role: "user", content: [{ type: "input_text", text: "say hi" }] }
      ],
      tools: [
        { ...weather, strict: false },
        {
          type: "namespace",
          name: "agents",
          description: "Agents",
          tools: [
            { ...weather, name: "spawn" },
            { ...weather, name: "agents.stop" },
            { type: "custom", name: "x" }
          ]
        },
        { type: "web_search", external_web_access: false },
        {
          type: "custom",
          name: "apply_patch",
          description: "d",
          format: { type: "grammar", syntax: "lark", definition: "start: hunk+" }
        }
      ],
      tool_choice: "auto",
      parallel_tool_calls: true,
      reasoning: { summary: "auto", effort: "xhigh" },
      store: false,
      include: ["reasoning.encrypted_content"],
      prompt_cache_key: "s",
      client_metadata: { a: "b" },
      text: { verbosity: "low" },
      previous_response_id: null
    })
    assert.deepStrictEqual(body, {
      messages: [
        { role: "system", content: "You are Codex" },
        { role: "user", content: "say hi" }
      ],
      tools: [
        sent("weather"),
        sent("agents.spawn"),
        sent("agents.stop"),
        { type: "function", function: { name: "agents.x", parameters: freeText({}) } },
        {
          type: "function",
          function: {
            name: "apply_patch",
            description: "d",
            parameters: freeText({ description: "start: hunk+" })
          }
        }
      ],
      think: "max"
    })
    assert.deepStrictEqual(options, {})
    assert.deepStrictEqual([stream, thinkIfAble, maxTokens], [true, true, undefined])
  })

  it("when items are of one turn of the assistant, then they are one message, and a result has the name of its tool", () => {
    assert.deepStrictEqual(
      messagesOf([
        { role: "user", content: "go" },
        {
          type: "reasoning",
          id: "rs_1",
          summary: [{ type: "summary_text", text: "hm" }],
          encrypted_content: "x"
        },
        {
          type: "message",
          role: "assistant",
          content: [{ type: "output_text", text: "I look", annotations: [] }]
        },
        { type: "function_call", call_id: "c1", name: "weather", arguments: '{"city":"Bern"}' },
        { type: "function_call", call_id: "c2", name: "spawn", namespace: "agents", arguments: "" },
        { type: "function_call_output", call_id: "c1", output: "12" },
        { type: "function_call_output", call_id: "c2", output: [{ type: "input_text", text: "ok" }] },
        { type: "custom_tool_call", call_id: "c3", name: "apply_patch", input: "*** Begin" },
        { type: "custom_tool_call_output", call_id: "c3", output: "Done" },
        { type: "web_search_call", id: "ws_1", status: "completed" },
        { type: "reasoning", summary: [], encrypted_content: "only here" },
        { role: "assistant", content: "a" },
        { role: "assistant", content: [{ type: "refusal", refusal: "b" }] }
      ]),
      [
        { role: "user", content: "go" },
        {
          role: "assistant",
          content: "I look",
          thinking: "hm",
          tool_calls: [
            { id: "c1", function: { name: "weather", arguments: { city: "Bern" } } },
            { id: "c2", function: { name: "agents.spawn", arguments: {} } }
          ]
        },
        { role: "tool", content: "12", tool_call_id: "c1", tool_name: "weather" },
        { role: "tool", content: "ok", tool_call_id: "c2", tool_name: "agents.spawn" },
        {
          role: "assistant",
          content: "",
          tool_calls: [{ id: "c3", function: { name: "apply_patch", arguments: { input: "*** Begin" } } }]
        },
        { role: "tool", content: "Done", tool_call_id: "c3", tool_name: "apply_patch" },
        { role: "assistant", content: "a", thinking: "only here" },
        { role: "assistant", content: "b" }
      ]
    )
  })

  it("when the input is a text or has images, then they are the user's, after the instructions", () => {
    assert.deepStrictEqual(accepted(asked({ instructions: "be brief" })).body["messages"], [
      { role: "system", content: "be brief" },
      { role: "user", content: "Hi" }
    ])
    const image = { type: "input_image", image_url: `data:image/png;base64,${picture}`, detail: "auto" }
    assert.deepStrictEqual(
      messagesOf([{ role: "user", content: [{ type: "input_text", text: "?" }, image] }]),
      [{ role: "user", content: "?", images: [picture] }]
    )
  })

  it("when something cannot be done, then the message names the field and what to do", () => {
    const cases: ReadonlyArray<readonly [Json, string]> = [
      [{ model: "m" }, "input: missing"],
      [asked({ input: 3 }), "input: expected string or array"],
      [asked({ input: [] }), "input: expected a message"],
      [
        asked({ previous_response_id: "resp_1" }),
        "previous_response_id: nothing is stored here; send the whole input"
      ],
      [asked({ conversation: { id: "c" } }), "conversation: nothing is stored here; send the whole input"],
      [asked({ prompt: { id: "p" } }), "prompt: nothing is stored here; send the whole input"],
      [asked({ background: true }), "background: no answer is kept for later"],
      [
        asked({ input: [{ type: "item_reference", id: "msg_1" }] }),
        "input.0: items are not stored here, so none can be referred to: set store to false"
      ],
      [asked({ input: [{ role: "robot", content: "x" }] }), "input.0.role: expected"],
      [asked({ input: [{ type: "function_call", call_id: "c" }] }), "input.0.name: missing"],
      [asked({ tools: [{ type: "shell" }] }), "tools.0: only OpenAI's models know it; send a function"],
      [
        asked({
          input: [{ role: "user", content: [{ type: "input_image", image_url: "https://a/b.png" }] }]
        }),
        "input.0.content.0.image_url: expected a data: URL"
      ],
      [asked({ tools: [{ type: "function" }] }), "tools.0.name: missing"],
      [
        asked({ tools: [weather], tool_choice: { type: "function", name: "x" } }),
        "tool_choice: expected the name"
      ],
      [asked({ reasoning: { effort: "huge" } }), "reasoning.effort: expected"],
      [
        asked({ text: { format: { type: "json_schema", schema: { type: "string", minLength: -1 } } } }),
        "text.format.schema"
      ],
      [asked({ max_output_tokens: 0 }), "max_output_tokens: expected a whole number"],
      [asked({ temperature: 1000 }), "temperature: expected"]
    ]
    for (const [body, message] of cases) assert.include(refused(body), message, JSON.stringify(body))
  })

  it("when items or listed tools are too many, also those that are dropped, then they are refused, however they are spread", () => {
    const many = (count: number, item: Json): ReadonlyArray<Json> => Array.from({ length: count }, () => item)
    const [dropped, said] = [{ type: "web_search_call" }, { role: "user", content: "hi" }]
    const input = [said, ...many(maxItems - 1, dropped)]
    assert.deepStrictEqual(accepted(asked({ input })).body["messages"], [said])
    for (const one of [dropped, said, null])
      assert.strictEqual(refused(asked({ input: [...input, one] })), "input: expected at most 8192 items")
    const other = { type: "web_search" }
    const waiting = { ...weather, defer_loading: true }
    const grouped = { type: "namespace", name: "n", tools: many(maxListed / 2 - 1, waiting) }
    accepted(asked({ tools: many(maxListed, other) }))
    accepted(asked({ tools: [grouped, grouped] }))
    for (const tools of [many(maxListed + 1, other), [grouped, grouped, other]])
      assert.include(
        refused(asked({ tools })),
        "tools: expected at most 1024 tools, with those in namespaces"
      )
    const added = { type: "additional_tools", role: "developer", tools: many(maxListed, other) }
    assert.include(refused(asked({ tools: [other], input: [said, added] })), "tools: expected at most 1024")
    const chosen = { type: "function", name: "weather" }
    const choice = (count: number) => ({ type: "allowed_tools", tools: many(count, chosen) })
    accepted(asked({ tools: [weather], tool_choice: choice(maxListed) }))
    assert.include(refused(asked({ tools: [weather], tool_choice: choice(maxListed + 1) })), "tool_choice")
  })

  it("when tools are chosen by name, then only those are sent, and with none no tools are", () => {
    const tools = [weather, { ...weather, name: "other" }, { type: "web_search" }]
    const chosen = (choice: Json) => accepted(asked({ tools, tool_choice: choice })).body["tools"]
    assert.deepStrictEqual(chosen({ type: "function", name: "other" }), [sent("other")])
    assert.deepStrictEqual(
      chosen({
        type: "allowed_tools",
        mode: "auto",
        tools: [{ type: "web_search" }, { type: "function", name: "weather" }]
      }),
      [sent("weather")]
    )
    for (const choice of ["auto", "required", null, { type: "web_search" }])
      assert.deepStrictEqual(chosen(choice), [sent("weather"), sent("other")])
    assert.isUndefined(chosen("none"))
    assert.isUndefined(accepted(asked({ tools: [{ type: "web_search" }] })).body["tools"])
  })

  it("when a format or options are asked for, then they are those of the chat surface", () => {
    const schema = { type: "object", properties: { a: { type: "string" } } }
    const formatOf = (format: Json) => accepted(asked({ text: { format } })).body["format"]
    assert.deepStrictEqual(formatOf({ type: "json_schema", name: "n", schema, strict: true }), schema)
    assert.strictEqual(formatOf({ type: "json_object" }), "json")
    assert.isUndefined(formatOf({ type: "text" }))
    assert.deepStrictEqual(accepted(asked({ temperature: 0.5, top_p: 0.9 })).options, {
      temperature: 0.5,
      top_p: 0.9
    })
    assert.strictEqual(accepted(asked({ user: "u", safety_identifier: "s" })).endUser, "s")
  })

  it("when the bound is above the cap, then it is lowered to the cap, and the request says so", () => {
    const { loweredTo, maxTokens } = accepted(asked({ max_output_tokens: cap + 1 }))
    assert.deepStrictEqual([maxTokens, loweredTo], [cap, cap])
    const within = accepted(asked({ max_output_tokens: cap }))
    assert.deepStrictEqual([within.maxTokens, within.loweredTo], [cap, undefined])
  })
})
