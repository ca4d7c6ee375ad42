import { assert, it } from "@effect/vitest"
import fc from "fast-check"
import { describe } from "vitest"
import { decodeFrame, ErrorLine, isFrame, Malformed } from "../../../src/backend/ollama/decodeFrame.ts"
import { LineSplitter } from "../../../src/backend/ollama/frames.ts"

/** A recorded conversation in the backend's own words, awkward characters included. */
const recorded = [
  `{"model":"m","created_at":"2026-08-21T10:00:00.123456789Z","message":{"role":"assistant","content":"","thinking":"hmm…"},"done":false}`,
  `{"model":"m","created_at":"2026-08-21T10:00:00.2Z","message":{"role":"assistant","content":"Grüße \\u003cb\\u003e 🚀\\n"},"done":false}`,
  `{"model":"m","created_at":"2026-08-21T10:00:00.3Z","message":{"role":"assistant","content":"","tool_calls":[{"id":"call_1","function":{"index":0,"name":"f","arguments":{"1":"a","x":{"y":[1,null]}}}}]},"done":false}`,
  `{"model":"m","created_at":"2026-08-21T10:00:00.4Z","message":{"role":"assistant","content":"日本"},"done":true,"done_reason":"stop","total_duration":10,"load_duration":1,"prompt_eval_count":12,"prompt_eval_cached_count":5,"prompt_eval_duration":2,"eval_count":4,"eval_duration":7}`
]

const splitAt = (bytes: Buffer, cuts: ReadonlyArray<number>): ReadonlyArray<Buffer> => {
  const at = [0, ...cuts.map((cut) => cut % bytes.length).toSorted((a, b) => a - b), bytes.length]
  return at.slice(1).map((end, i) => bytes.subarray(at[i], end))
}

const linesOf = (chunks: ReadonlyArray<Buffer>, limit = 8_388_608): ReadonlyArray<string> => {
  const lines = new LineSplitter(limit)
  const all = chunks.flatMap((chunk) => {
    const pushed = lines.push(chunk)
    assert.isDefined(pushed)
    return pushed ?? []
  })
  return [...all, ...lines.end()]
}

const chat = (line: string) => decodeFrame("chat", line)
const final = (more: object) =>
  chat(JSON.stringify({ created_at: "2026-08-21T10:00:00Z", message: { content: "" }, done: true, ...more }))

describe("splitting bytes into lines", () => {
  const whole = recorded.map(chat)

  it("when the network cuts anywhere, then the frames are the same", () => {
    assert.isTrue(whole.every(isFrame))
    fc.assert(
      fc.property(
        fc.array(fc.nat(), { maxLength: 40 }),
        fc.constantFrom("\n", "\r\n", "\n\n"),
        fc.boolean(),
        (cuts, newline, terminated) => {
          const bytes = Buffer.from(recorded.join(newline) + (terminated ? newline : ""))
          assert.deepStrictEqual(linesOf(splitAt(bytes, cuts)).map(chat), whole)
        }
      )
    )
  })

  it("when any text is split, then no byte is lost or added", () => {
    const text = fc.string({ unit: "binary" }).filter((line) => line.trim() !== "" && !line.includes("\n"))
    fc.assert(
      fc.property(fc.array(text, { minLength: 1 }), fc.array(fc.nat()), (texts, cuts) => {
        const bytes = Buffer.from(texts.join("\n"))
        assert.deepStrictEqual(linesOf(splitAt(bytes, cuts)), bytes.toString().split("\n"))
      })
    )
  })

  it("when a line is over the limit, then it is refused, and a line of exactly the limit is not", () => {
    for (const size of [1, 7, 1000]) {
      const cut = (length: number) => {
        const bytes = Buffer.from(`${"x".repeat(length)}\n`)
        return Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) =>
          bytes.subarray(i * size, (i + 1) * size)
        )
      }
      assert.deepStrictEqual(linesOf(cut(100), 100), ["x".repeat(100)])
      const lines = new LineSplitter(100)
      assert.isTrue(cut(101).some((chunk) => lines.push(chunk) === undefined))
    }
  })

  it("when a megabyte comes byte by byte, then it is split in linear time", () => {
    const lines = new LineSplitter(8_388_608)
    const one = Buffer.from("x")
    for (let i = 0; i < 1024 * 1024; i += 1) lines.push(one)
    const [line] = lines.end()
    assert.strictEqual(line?.length, 1024 * 1024)
  })
})

describe("a line", () => {
  it("when a line says anything at all, then it is a frame, an error or malformed, and nothing throws", () => {
    const key = fc.constantFrom(
      "message",
      "response",
      "done",
      "error",
      "content",
      "tool_calls",
      "logprobs",
      "context"
    )
    const value = fc.letrec((tie) => ({
      any: fc.oneof(
        { maxDepth: 4 },
        fc.jsonValue(),
        fc.dictionary(key, tie("any")),
        fc.array(tie("any"), { maxLength: 3 })
      )
    })).any
    fc.assert(
      fc.property(
        fc.oneof(
          value.map((v) => JSON.stringify(v)),
          fc.string()
        ),
        fc.boolean(),
        (line, isChat) => {
          const decoded = decodeFrame(isChat ? "chat" : "generate", line)
          assert.isTrue(
            decoded instanceof ErrorLine || decoded instanceof Malformed || typeof decoded.text === "string"
          )
        }
      ),
      { numRuns: 2000 }
    )
  })

  it("when a line has known and unknown fields, then the known ones are kept and no others", () => {
    const frame = final({
      remote_host: "https://ollama.com",
      remote_model: "x",
      _debug_info: { rendered_template: "SYSTEM" },
      secret: 1,
      message: {
        content: "c",
        role: "assistant",
        secret: 1,
        tool_calls: [{ secret: 1, function: { name: "f", arguments: {}, secret: 1 } }]
      },
      logprobs: [
        {
          token: "a",
          logprob: -1,
          bytes: [97],
          secret: 1,
          top_logprobs: [{ token: "b", logprob: -2, secret: 1 }]
        }
      ]
    })
    assert.deepStrictEqual(frame, {
      createdAt: "2026-08-21T10:00:00Z",
      text: "c",
      done: true,
      toolCalls: [{ name: "f", arguments: {} }],
      logprobs: [{ token: "a", logprob: -1, bytes: [97], top_logprobs: [{ token: "b", logprob: -2 }] }]
    })
  })

  it("when a line of generate is read, then it has text, thinking and context at its top", () => {
    const line = `{"created_at":"2026-08-21T10:00:00Z","response":"r","thinking":"t","done":true,"done_reason":"length","context":[1,2]}`
    assert.deepStrictEqual(decodeFrame("generate", line), {
      createdAt: "2026-08-21T10:00:00Z",
      text: "r",
      thinking: "t",
      done: true,
      doneReason: "length",
      context: [1, 2]
    })
  })

  it("when a final frame has counts, then only possible counts are taken, and none of other frames", () => {
    for (const absurd of [-1, 1.5, 1e300, "7", null, true, [1]]) {
      const frame = final({
        eval_count: absurd,
        prompt_eval_count: absurd,
        prompt_eval_cached_count: absurd,
        total_duration: absurd
      })
      assert.deepStrictEqual(frame, { createdAt: "2026-08-21T10:00:00Z", text: "", done: true })
    }
    assert.notProperty(chat(`{"done":false,"eval_count":9,"message":{"content":"x"}}`), "evalCount")
  })

  for (const line of [
    "",
    "null",
    "[]",
    `"x"`,
    "{}",
    `{"done":"true"}`,
    `{"done":false,"message":"x"}`,
    `{"done":false,"message":{"content":7}}`,
    `{"done":false,"message":{"content":"","thinking":{}}}`,
    `{"done":false,"message":{"content":"","tool_calls":{}}}`,
    `{"done":false,"message":{"content":"","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}}`,
    `{"done":false,"message":{"content":"","tool_calls":[{"function":{"arguments":{}}}]}}`
  ]) {
    it(`when it is ${line === "" ? "empty" : line}, then it is malformed`, () => {
      assert.instanceOf(chat(line), Malformed)
    })
  }

  it("when what it holds is deeper than any client could send back, then it is malformed and nothing breaks", () => {
    const nested = (levels: number) => `${'{"a":'.repeat(levels)}1${"}".repeat(levels)}`
    const call = (levels: number) =>
      chat(
        `{"done":false,"message":{"content":"","tool_calls":[{"function":{"name":"f","arguments":${nested(levels)}}}]}}`
      )
    assert.isTrue(isFrame(call(56)))
    for (const levels of [57, 100_000]) assert.deepStrictEqual(call(levels), new Malformed("tool_calls"))
    assert.instanceOf(chat(`{"error":${nested(100_000)}}`), ErrorLine)
  })

  it("when a line says that it is an error, in any shape, then it is an error", () => {
    assert.deepStrictEqual(chat(`{"error":"x","done":true}`), new ErrorLine("x"))
    assert.deepStrictEqual(chat(`{"error":{"message":"x"}}`), new ErrorLine(`{"message":"x"}`))
    assert.isTrue(isFrame(chat(`{"error":"","done":false}`)))
  })
})
