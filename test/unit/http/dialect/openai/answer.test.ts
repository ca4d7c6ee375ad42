import { assert, describe, it } from "@effect/vitest"
import type { Frame } from "../../../../../src/domain/Frame.ts"
import { chatEncoder } from "../../../../../src/http/dialect/openai/answer.ts"
import { done, frame } from "../answers.ts"

/** The data of every event but the last, which has to be `[DONE]`. */
const events = (frames: ReadonlyArray<Frame>, usageChunk = false) => {
  const text = chatEncoder("my-model", { usageChunk }).frames(frames)
  assert.isTrue(text.endsWith("data: [DONE]\n\n"))
  return text
    .split("\n\n")
    .slice(0, -2)
    .map((event) => JSON.parse(event.slice("data: ".length)))
}

const shape = (more: object) => ({
  object: "chat.completion.chunk",
  created: 1_795_255_200,
  model: "my-model",
  system_fingerprint: "fp_tollgate",
  ...more
})
const without = (value: unknown) =>
  JSON.parse(JSON.stringify(value, (key, inner) => (key === "id" ? undefined : inner)))

describe("POST /v1/chat/completions, the answer", () => {
  it("when it is streamed, then the role comes once, content as it is made, and a last chunk has finish reason and usage", () => {
    assert.deepStrictEqual(without(events([frame({ text: "Hel" }), frame({ text: "lo" }), done()])), [
      shape({ choices: [{ index: 0, delta: { role: "assistant", content: "Hel" }, finish_reason: null }] }),
      shape({ choices: [{ index: 0, delta: { content: "lo" }, finish_reason: null }] }),
      shape({
        choices: [{ index: 0, delta: {}, finish_reason: "stop" }],
        usage: { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 }
      })
    ])
  })

  it("when the backend says what it had in its cache, then the usage has it as OpenAI's has", () => {
    const cached = done({ promptEvalCachedCount: 4 })
    const usage = { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 }
    const expected = { ...usage, prompt_tokens_details: { cached_tokens: 4 } }
    assert.deepInclude(JSON.parse(chatEncoder("my-model").object(cached)), { usage: expected })
    assert.deepInclude(events([frame({ text: "Hi" }), cached]).at(-1), { usage: expected })
    assert.deepInclude(JSON.parse(chatEncoder("my-model").object(done())), { usage })
  })

  it("when usage was asked for in a chunk of its own, then it comes there, without choices, and nowhere else", () => {
    const chunks = events([frame({ text: "Hi" }), done()], true)
    assert.deepStrictEqual(without(chunks.slice(1)), [
      shape({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] }),
      shape({ choices: [], usage: { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 } })
    ])
  })

  it("when a field is null, then it is the content beside tool calls or the finish reason of a stream", () => {
    const whole = chatEncoder("my-model").object(done({ text: "Hi" }))
    assert.notInclude(whole, "null")
    assert.include(whole, '"system_fingerprint":"fp_tollgate"')
  })

  it("when the last frame carries content, then it is sent before the last chunk", () => {
    const sent = without(events([done({ text: "all at once" })]))
    assert.deepStrictEqual(sent[0].choices[0].delta, { role: "assistant", content: "all at once" })
    assert.deepStrictEqual(sent[1].choices[0].delta, {})
  })

  it("when tools are called, then calls are numbered here, each has an id, and finish_reason is tool_calls", () => {
    const call = { name: "f", arguments: { a: 1 } }
    const sent = events([frame({ toolCalls: [call] }), done({ toolCalls: [call] })])
    const calls = sent.flatMap(({ choices }) => choices[0].delta.tool_calls ?? [])
    for (const [at, { id, ...rest }] of calls.entries()) {
      assert.match(id, /^call[_-].{8,}$/)
      assert.deepStrictEqual(rest, {
        index: at,
        type: "function",
        function: { name: "f", arguments: '{"a":1}' }
      })
    }
    assert.strictEqual(new Set(calls.map(({ id }) => id)).size, 2)
    assert.strictEqual(sent.at(-1).choices[0].finish_reason, "tool_calls")
  })

  it("when there is reasoning, then it comes in a chunk of its own before the content", () => {
    const sent = events([frame({ thinking: "hm", text: "yes" }), done({ doneReason: "length" })])
    assert.deepStrictEqual(
      sent.map(({ choices }) => choices[0].delta),
      [{ role: "assistant", reasoning: "hm" }, { content: "yes" }, {}]
    )
    assert.strictEqual(sent.at(-1).choices[0].finish_reason, "length")
  })

  it("when chunks belong to one answer, then they have one id, and another answer has another", () => {
    const ids = (frames: ReadonlyArray<Frame>) => new Set(events(frames).map(({ id }) => id))
    const [first] = ids([frame({ text: "a" }), done()])
    assert.match(String(first), /^chatcmpl-[0-9a-f]{32}$/)
    assert.strictEqual(ids([frame({ text: "a" }), frame({ text: "b" }), done()]).size, 1)
    assert.isFalse(ids([done()]).has(first))
  })

  it("when a stream fails, then it ends with one error event and no [DONE]", () => {
    const text = chatEncoder("m").failure(
      { status: 502, type: "bad_gateway", message: "model backend unavailable" },
      "id-1"
    )
    assert.strictEqual(
      text,
      'data: {"error":{"message":"model backend unavailable","type":"bad_gateway","code":502},"request_id":"id-1"}\n\n'
    )
  })

  it("when it is not streamed, then it is one object, with content null when there are only calls", () => {
    const whole = JSON.parse(
      chatEncoder("m").object(done({ toolCalls: [{ id: "c", name: "f", arguments: {} }] }))
    )
    assert.strictEqual(whole.object, "chat.completion")
    assert.isNull(whole.choices[0].message.content)
    assert.lengthOf(whole.choices[0].message.tool_calls, 1)
    assert.strictEqual(whole.choices[0].finish_reason, "tool_calls")
    assert.strictEqual(whole.usage.total_tokens, 8)
  })
})
