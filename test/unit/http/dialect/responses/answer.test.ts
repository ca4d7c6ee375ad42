import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import type { Frame } from "../../../../../src/domain/Frame.ts"
import type { InferenceRequest, Json } from "../../../../../src/domain/Inference.ts"
import { responsesEncoder } from "../../../../../src/http/dialect/responses/answer.ts"
import { responses } from "../../../../../src/http/dialect/responses/dialect.ts"
import { cap, decoding } from "../../decoding.ts"
import { anyFrame, anyFrames, done, folded, frame, messageOf } from "../answers.ts"
import { checkStream, eventsOf, type Item, textIn } from "./events.ts"

const { accepted } = decoding(responses)
const requestId = "01a1fe92-0000-7000-8000-00000000000a"

const requestOf = (more: { readonly [field: string]: Json } = {}): InferenceRequest =>
  accepted({ model: "my-model", input: "Hello", stream: true, ...more })
const encoder = (request = requestOf()) => responsesEncoder(request, requestId)
const streamOf = (frames: ReadonlyArray<Frame>): string => {
  const { frames: encode } = encoder()
  return frames.map((each) => encode([each])).join("")
}

const textsOf = (output: ReadonlyArray<Item>, type: string): string =>
  output
    .filter((item) => item.type === type)
    .map(textIn)
    .join("")

const objectOf = (frames: ReadonlyArray<Frame>) => JSON.parse(encoder().object(folded(frames)))

describe("POST /v1/responses, the answer", () => {
  it("when frames come in any order, then their events follow the grammar and have all of their content", () => {
    fc.assert(
      fc.property(anyFrames, (frames) => {
        const { incomplete_details, output, status, usage } = checkStream(streamOf(frames))
        const run = folded(frames)
        assert.strictEqual(textsOf(output, "message"), run.text)
        assert.strictEqual(textsOf(output, "reasoning"), run.thinking ?? "")
        assert.deepStrictEqual(
          output.flatMap((item) => (item.type === "function_call" ? [[item.name, item.arguments]] : [])),
          (run.toolCalls ?? []).map(({ arguments: args, name }) => [name, JSON.stringify(args)])
        )
        const isCut = run.doneReason === "length"
        assert.strictEqual(status, isCut ? "incomplete" : "completed")
        assert.deepStrictEqual(incomplete_details, isCut ? { reason: "max_output_tokens" } : null)
        const { evalCount: written = 0, promptEvalCount: read = 0 } = run
        assert.deepStrictEqual(usage, {
          input_tokens: read,
          input_tokens_details: { cached_tokens: run.promptEvalCachedCount ?? 0 },
          output_tokens: written,
          output_tokens_details: { reasoning_tokens: 0 },
          total_tokens: read + written
        })
      }),
      { numRuns: 300 }
    )
  })

  it("when an answer fails after any frames, then the events end once, with its code and the items that were done", () => {
    const errors = [
      [{ status: 400, type: "context_length_exceeded" }, "context_length_exceeded"],
      [{ status: 429, type: "budget_exceeded" }, "insufficient_quota"],
      [{ status: 429, type: "token_limit_exceeded" }, "rate_limit_exceeded"],
      [{ status: 400, type: "invalid_request" }, "invalid_prompt"],
      [{ status: 502, type: "bad_gateway" }, "server_error"]
    ] as const
    fc.assert(
      fc.property(
        fc.array(anyFrame, { maxLength: 5 }),
        fc.constantFrom(...errors),
        (frames, [error, code]) => {
          const { failure, frames: encode } = encoder()
          const stream = encode(frames) + failure({ ...error, message: "sorry" }, requestId)
          const response = checkStream(stream)
          assert.strictEqual(response.status, "failed")
          assert.deepStrictEqual(response.error, { code, message: "sorry" })
        }
      )
    )
  })

  it("when the items of an answer are sent back, streamed or whole, then they are one message with all of its content", () => {
    fc.assert(
      fc.property(anyFrames, (frames) => {
        const run = folded(frames)
        const outputs = [checkStream(streamOf(frames)).output, objectOf(frames).output]
        for (const output of outputs) {
          const ids = output.flatMap((item: Item) => (item.type === "function_call" ? item.call_id : []))
          assert.deepStrictEqual(accepted({ model: "m", input: output }).body["messages"], [
            messageOf(run, ids)
          ])
        }
      }),
      { numRuns: 200 }
    )
  })

  it("when text, thinking and a call are answered, then their events are those that clients know", () => {
    const stream = streamOf([
      frame({ thinking: "hm" }),
      frame({ text: "Hel" }),
      frame({ text: "lo" }),
      frame({ toolCalls: [{ id: "c1", name: "f", arguments: { a: 1 } }] }),
      done()
    ])
    assert.deepStrictEqual(
      eventsOf(stream).map(({ delta, output_index: index, type }) =>
        [type.replace("response.", ""), index, delta].filter((part) => part !== undefined).join(" ")
      ),
      [
        "created",
        "in_progress",
        "output_item.added 0",
        "reasoning_summary_part.added 0",
        "reasoning_summary_text.delta 0 hm",
        "reasoning_summary_text.done 0",
        "reasoning_summary_part.done 0",
        "output_item.done 0",
        "output_item.added 1",
        "content_part.added 1",
        "output_text.delta 1 Hel",
        "output_text.delta 1 lo",
        "output_text.done 1",
        "content_part.done 1",
        "output_item.done 1",
        "output_item.added 2",
        'function_call_arguments.delta 2 {"a":1}',
        "function_call_arguments.done 2",
        "output_item.done 2",
        "completed"
      ]
    )
  })

  it("when an answer is whole, then it repeats what was asked and says what is not", () => {
    const tools = [
      { type: "web_search", filters: { allowed_domains: ["a"] } },
      { type: "function", name: "f", parameters: {}, strict: true, description: "d", output_schema: {} }
    ]
    const sent = {
      instructions: "be brief",
      tools,
      max_output_tokens: 10_000_000,
      reasoning: { effort: "low", summary: "auto" },
      parallel_tool_calls: false,
      presence_penalty: 0.5,
      prompt_cache_key: "k",
      safety_identifier: "s",
      tool_choice: { type: "allowed_tools", mode: "required", tools: [{ type: "function", name: "f" }] },
      text: {
        verbosity: "low",
        format: { type: "json_schema", name: "n", description: "d", strict: true, schema: { type: "object" } }
      }
    }
    const request = requestOf(sent)
    const answer = JSON.parse(encoder(request).object(done({ text: "Hi" })))
    assert.deepInclude(answer, {
      id: "resp_01a1fe9200007000800000000000000a",
      object: "response",
      created_at: 1_795_255_200,
      completed_at: 1_795_255_200,
      status: "completed",
      model: "my-model",
      ...sent,
      max_output_tokens: cap,
      frequency_penalty: 0,
      store: false,
      error: null
    })
    assert.deepStrictEqual(answer.output, [
      {
        id: "msg_01a1fe9200007000800000000000000a_0",
        type: "message",
        status: "completed",
        role: "assistant",
        content: [{ type: "output_text", text: "Hi", annotations: [], logprobs: [] }]
      }
    ])
  })

  it("when a request leaves keys out that the standard demands, then the answer has them", () => {
    const request = requestOf({
      tools: [{ type: "function", name: "f" }],
      tool_choice: { type: "allowed_tools", tools: [{ type: "function", name: "f" }] },
      reasoning: { effort: "low" },
      text: { format: { type: "json_schema", name: "n", schema: { type: "object" } } },
      parallel_tool_calls: null
    })
    assert.deepInclude(JSON.parse(encoder(request).object(done({ text: "Hi" }))), {
      tools: [{ type: "function", name: "f", description: null, parameters: null, strict: null }],
      tool_choice: { type: "allowed_tools", mode: "auto", tools: [{ type: "function", name: "f" }] },
      reasoning: { effort: "low", summary: null },
      text: {
        format: {
          type: "json_schema",
          name: "n",
          description: null,
          strict: false,
          schema: { type: "object" }
        }
      },
      parallel_tool_calls: true
    })
  })

  it("when a tool of free text is called, then its call is a text, which comes back as the argument of the call", () => {
    const tools = [
      { type: "custom", name: "patch" },
      { type: "namespace", name: "n", tools: [{ type: "custom", name: "run" }] }
    ]
    const request = requestOf({ tools })
    const toolCalls = [
      { id: "c1", name: "patch", arguments: { input: "*** Begin" } },
      { id: "c2", name: "n.run", arguments: { command: "ls" } }
    ]
    const { output } = checkStream(encoder(request).frames([done({ toolCalls })]))
    assert.deepStrictEqual(
      output.map((item) => (item.type === "custom_tool_call" ? [item.namespace, item.name, item.input] : [])),
      [
        [undefined, "patch", "*** Begin"],
        ["n", "run", '{"command":"ls"}']
      ]
    )
    const input = JSON.parse(JSON.stringify(output.slice(0, 1)))
    assert.deepStrictEqual(accepted({ model: "m", input }).body["messages"], [
      {
        role: "assistant",
        content: "",
        tool_calls: [{ id: "c1", function: { name: "patch", arguments: { input: "*** Begin" } } }]
      }
    ])
  })

  it("when an answer has nothing, then it has an empty message, streamed and whole", () => {
    for (const output of [checkStream(streamOf([done()])).output, objectOf([done()]).output])
      assert.deepStrictEqual([output.length, output[0]?.type, textIn(output[0])], [1, "message", ""])
  })

  it("when a client sends only the encrypted content of a reasoning back, then the model gets its thinking", () => {
    const { output } = checkStream(streamOf([frame({ thinking: "hm" }), done({ text: "Hi" })]))
    const input = JSON.parse(JSON.stringify(output).replace(/"summary":\[[^\]]+\]/, '"summary":[]'))
    assert.deepStrictEqual(accepted({ model: "m", input }).body["messages"], [
      { role: "assistant", content: "Hi", thinking: "hm" }
    ])
  })

  it("when a function of a namespace is called, then the client gets both names", () => {
    const tools = [{ type: "namespace", name: "agents", tools: [{ type: "function", name: "spawn" }] }]
    const { object } = encoder(requestOf({ tools }))
    const run = done({ toolCalls: [{ name: "agents.spawn", arguments: {} }] })
    const [item] = JSON.parse(object(run)).output
    assert.deepInclude(item, { type: "function_call", namespace: "agents", name: "spawn", arguments: "{}" })
  })

  it("when the client waits for the model, then it is told so at any time, and the answer still begins once", () => {
    const { frames, waiting } = encoder()
    const text = [waiting?.(), waiting?.(), frames([frame({ text: "Hi" })]), frames([done()])].join("")
    assert.deepStrictEqual(
      eventsOf(text)
        .slice(0, 4)
        .map(({ type }) => type),
      ["response.created", "response.in_progress", "response.in_progress", "response.output_item.added"]
    )
    checkStream(text)
  })
})
