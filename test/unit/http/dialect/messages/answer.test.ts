/** The events of `/v1/messages` for any frames, and what becomes of an answer that is sent back. */
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { Schema } from "effect"
import { MessagesEvent, MessagesMessage } from "../../../../../build/openapi/answers.ts"
import type { Frame } from "../../../../../src/domain/Frame.ts"
import type { InferenceRequest, Json } from "../../../../../src/domain/Inference.ts"
import { readJson } from "../../../../../src/domain/json.ts"
import { messages } from "../../../../../src/http/dialect/messages/dialect.ts"
import { toErrorResponse } from "../../../../../src/http/errors/errorResponses.ts"
import { BackendFailed, BadRequest } from "../../../../../src/domain/Errors.ts"
import { overflowDetail } from "../../../../../src/domain/promptWindow.ts"
import { messagesSurface } from "../../../../../src/http/dialect/messages/surface.ts"
import { decoding } from "../../decoding.ts"
import { anyFrames, folded, messageOf } from "../answers.ts"

const { accepted } = decoding(messages)
/** V8 misreads keys with escapes. */
const parsed = (text: string) => Object(readJson(text))
const request: InferenceRequest = accepted({
  model: "m",
  max_tokens: 50,
  stream: true,
  messages: [{ role: "user", content: "hi" }]
})
const requestId = "01a1fca4-4f59-7db5-bd9d-1ef8280fed72"
const newEncoder = () => messages.encoder(request, { requestId, seal: (ids) => ids })

type Event = typeof MessagesEvent.Type
type Block = (typeof MessagesMessage.Type)["content"][number]
const decodeEvent = Schema.decodeUnknownSync(Schema.fromJsonString(MessagesEvent), {
  onExcessProperty: "error"
})
const decodeMessage = Schema.decodeUnknownSync(MessagesMessage)

const eventsOf = (text: string): ReadonlyArray<Event> => {
  if (text === "") return []
  assert.isTrue(text.endsWith("\n\n"))
  return text
    .slice(0, -2)
    .split("\n\n")
    .map((lines) => {
      const [, name, data] = /^event: (\w+)\ndata: ([^\r\n]+)$/.exec(lines) ?? []
      const event = decodeEvent(data ?? "")
      assert.strictEqual(event.type, name)
      return event
    })
}

interface Read {
  readonly content: ReadonlyArray<Json>
  readonly stopReason: string | undefined
}

/** Reads events as the grammar says, and fails at the first that it does not allow. */
const read = (events: ReadonlyArray<Event>): Read => {
  const content: Array<{ readonly block: Block; text: string }> = []
  let open = false
  let state = "before"
  let stopReason: string | undefined
  for (const event of events) {
    if (event.type === "message_start") {
      assert.strictEqual(state, "before")
      assert.deepStrictEqual(event.message.content, [])
      state = "in"
    } else if (event.type === "message_delta") {
      assert.deepStrictEqual([state, open], ["in", false])
      state = "ended"
      stopReason = event.delta.stop_reason
    } else if (!("index" in event)) {
      assert.strictEqual(state, event.type === "ping" ? "in" : "ended")
      if (event.type === "message_stop") state = "stopped"
    } else {
      assert.strictEqual(state, "in")
      if (event.type === "content_block_start") {
        assert.deepStrictEqual([open, event.index], [false, content.length])
        content.push({ block: event.content_block, text: "" })
        open = true
        continue
      }
      assert.deepStrictEqual([open, event.index], [true, content.length - 1])
      const last = content.at(-1)
      if (event.type === "content_block_stop" || last === undefined) {
        open = false
        continue
      }
      const { delta } = event
      const type = last.block.type
      if (delta.type === "text_delta") last.text += type === "text" ? delta.text : assert.fail(type)
      if (delta.type === "thinking_delta")
        last.text += type === "thinking" ? delta.thinking : assert.fail(type)
      if (delta.type === "input_json_delta")
        last.text += type === "tool_use" ? delta.partial_json : assert.fail(type)
      if (delta.type === "signature_delta") assert.strictEqual(type, "thinking")
    }
  }
  assert.strictEqual(state, "stopped")
  return {
    stopReason,
    content: content.map(({ block, text }) => {
      if (block.type === "tool_use") return { ...block, input: parsed(text) }
      assert.notStrictEqual(text, "")
      return block.type === "text" ? { ...block, text } : { ...block, thinking: text }
    })
  }
}

/** Texts of one type, joined: frames may come in any order, an answer without a stream has one block of each. */
const joinedOf = (content: ReadonlyArray<Json>) => {
  const calls: Array<Json> = []
  const sums = { text: "", thinking: "", calls }
  for (const block of content) {
    const { input, name, text = "", thinking = "", type } = parsed(JSON.stringify(block))
    sums.text += text
    sums.thinking += thinking
    if (type === "tool_use") calls.push([name, input])
  }
  return sums
}

describe("POST /v1/messages, the answer", () => {
  it("when any frames come in any chunks, then the events follow the grammar and add up to the answer in one object", () => {
    fc.assert(
      fc.property(anyFrames, fc.nat(), fc.nat(2), (all, at, waits) => {
        const encoder = newEncoder()
        const cut = at % (all.length + 1)
        let sent = ""
        for (let i = 0; i < waits; i += 1) sent += encoder.waiting?.() ?? ""
        sent += encoder.frames(all.slice(0, cut)) + encoder.frames(all.slice(cut))
        const events = eventsOf(sent)
        const { content, stopReason } = read(events)
        assert.strictEqual(events.filter(({ type }) => type === "ping").length, waits)
        const whole = decodeMessage(parsed(newEncoder().object(folded(all))))
        assert.deepStrictEqual(joinedOf(content), joinedOf(whole.content.map((block) => ({ ...block }))))
        assert.strictEqual(stopReason, whole.stop_reason)
        const [delta] = events.flatMap((event) => (event.type === "message_delta" ? [event.usage] : []))
        assert.deepStrictEqual(delta, whole.usage)
        const last = all.at(-1)
        const input = (whole.usage["input_tokens"] ?? 0) + (whole.usage["cache_read_input_tokens"] ?? 0)
        assert.strictEqual(input, last !== undefined && "promptEvalCount" in last ? last.promptEvalCount : 0)
        const ids = content.flatMap((block) => parsed(JSON.stringify(block)).id ?? [])
        const unnamed = all.flatMap(({ toolCalls = [] }) => toolCalls).filter(({ id }) => id === undefined)
        assert.isAtLeast(new Set(ids).size, unnamed.length)
      })
    )
  })

  it("when the blocks of an answer are sent back, then the model server gets its own message again", () => {
    fc.assert(
      fc.property(anyFrames, (all) => {
        const run = folded(all)
        const { content } = decodeMessage(parsed(newEncoder().object(run)))
        const blocks = content.map((block) => ({ ...block }))
        const sent = accepted({
          model: "m",
          max_tokens: 1,
          messages: [
            { role: "user", content: "hi" },
            { role: "assistant", content: blocks }
          ]
        }).body["messages"]
        const ids = blocks.flatMap((block) => (block.type === "tool_use" ? [block.id] : []))
        const answered = blocks.length === 0 ? [] : [messageOf(run, ids)]
        assert.deepStrictEqual<unknown>(sent, [{ role: "user", content: "hi" }, ...answered])
      })
    )
  })

  it("when a stream fails, then the last event is an error with the words of both kinds of clients", () => {
    const encoder = newEncoder()
    encoder.frames([{ createdAt: "", text: "a", done: false }])
    const last = encoder.failure(toErrorResponse(new BackendFailed({ fault: "cut" })), requestId)
    const [, data = ""] = /^event: error\ndata: (.*)\n\n$/.exec(last) ?? []
    assert.deepStrictEqual(JSON.parse(data), {
      type: "error",
      error: { type: "api_error", message: "model backend unavailable", code: 502 },
      request_id: requestId
    })
  })

  it("when a prompt does not fit, then the error begins with the words that Claude Code looks for", () => {
    const refusal = toErrorResponse(new BadRequest({ detail: overflowDetail(4096, 5000), overflow: true }))
    const { error } = messagesSurface.errorBody(refusal, requestId)
    assert.match(JSON.stringify(error), /^{"message":"prompt is too long: [^"]*4096 tokens/)
  })

  it("when the model server had a part of the prompt in its cache, then that part is counted apart", () => {
    const done = { createdAt: "", text: "", done: true, promptEvalCount: 100, evalCount: 3 }
    const usage = (frame: Frame) => JSON.parse(newEncoder().object(frame)).usage
    assert.deepStrictEqual(usage(done), { input_tokens: 100, output_tokens: 3 })
    assert.deepStrictEqual(usage({ ...done, promptEvalCachedCount: 90 }), {
      input_tokens: 10,
      cache_creation_input_tokens: 0,
      cache_read_input_tokens: 90,
      output_tokens: 3
    })
  })
})
