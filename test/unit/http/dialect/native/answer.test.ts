import { assert, describe, it } from "@effect/vitest"
import type { Frame } from "../../../../../src/domain/Frame.ts"
import { Fold } from "../../../../../src/http/dialect/fold.ts"
import { chatEncoder } from "../../../../../src/http/dialect/native/answer.ts"

const createdAt = "2026-11-21T10:00:00.123456789Z"
const frame = (text: string, more: Partial<Frame> = {}): Frame => ({ createdAt, text, done: false, ...more })

describe("POST /api/chat, the answer", () => {
  it("when frames come, then each is one line with its end and the client's own spelling of the model", () => {
    const text = chatEncoder("My/Model").frames([
      frame("a\nb"),
      frame("", {
        done: true,
        doneReason: "stop",
        promptEvalCount: 5,
        promptEvalCachedCount: 4,
        evalCount: 2,
        totalDuration: 9
      })
    ])
    assert.strictEqual(
      text,
      `{"model":"My/Model","created_at":"${createdAt}","message":{"role":"assistant","content":"a\\nb"},"done":false}\n` +
        `{"model":"My/Model","created_at":"${createdAt}","message":{"role":"assistant","content":""},"done":true,` +
        `"done_reason":"stop","total_duration":9,"prompt_eval_count":5,"prompt_eval_cached_count":4,"eval_count":2}\n`
    )
  })

  it("when a stream fails, then it ends with an error that is a string", () => {
    const text = chatEncoder("m").failure(
      { status: 502, type: "bad_gateway", message: "model backend unavailable" },
      "id"
    )
    assert.strictEqual(text, '{"error":"model backend unavailable"}\n')
  })

  it("when it is not streamed, then the frames become the object the backend itself would have sent", () => {
    const encoder = chatEncoder("m")
    const fold = new Fold()
    const call = { name: "f", arguments: { a: 1 } }
    for (const next of [
      frame("Hel", { thinking: "h" }),
      frame("lo", { thinking: "m", toolCalls: [call] }),
      frame("!", { done: true, doneReason: "stop", evalCount: 3, toolCalls: [call] })
    ]) {
      fold.add(next)
    }
    assert.isDefined(fold.frame)
    assert.deepStrictEqual(JSON.parse(encoder.object(fold.frame)), {
      model: "m",
      created_at: createdAt,
      message: {
        role: "assistant",
        content: "Hello!",
        thinking: "hm",
        tool_calls: [
          { function: { index: 0, name: "f", arguments: { a: 1 } } },
          { function: { index: 1, name: "f", arguments: { a: 1 } } }
        ]
      },
      done: true,
      done_reason: "stop",
      eval_count: 3
    })
  })
})
