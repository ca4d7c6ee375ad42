/** Frames with only text are written by joining texts. They must look as if an object was made of each. */
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import type { Frame } from "../../../../src/domain/Frame.ts"
import { jsonText } from "../../../../src/domain/json.ts"
import type { Encoder } from "../../../../src/http/dialect/Dialect.ts"
import { chatEncoder } from "../../../../src/http/dialect/native/answer.ts"
import { generateEncoder } from "../../../../src/http/dialect/native/answer.ts"
import { chatEncoder as openaiEncoder } from "../../../../src/http/dialect/openai/answer.ts"
import { completionEncoder } from "../../../../src/http/dialect/openai/answer.ts"

const text = fc.oneof(
  fc.string({ unit: "binary" }),
  fc.string({ unit: "grapheme" }),
  fc.constantFrom("", '"', "\\", "\n", "\u2028", "\ud800", "\udc00x", "</script>", "\u0000", "${x}", "$&")
)
const createdAt = fc.constantFrom("2026-08-21T10:00:00.123456789Z", "2026-01-01T00:00:00Z")
const frame = fc.record({ createdAt, text, done: fc.constant(false) })
const model = fc.oneof(
  fc.string(),
  fc.constantFrom("llama3.2:latest", '"},"finish_reason":null}]}\n\n', '""')
)

/** The lines that are written for the frames. */
const linesOf = (encoder: Encoder, frames: ReadonlyArray<Frame>): ReadonlyArray<string> =>
  encoder
    .frames(frames)
    .split("\n")
    .filter((line) => line !== "")

const withoutIds = (line: string): string => line.replace(/"id":"[a-z]+-[0-9a-f]{32}"/, '"id":""')

describe("frames with only text", () => {
  const native: ReadonlyArray<readonly [string, (model: string) => Encoder, (frame: Frame) => object]> = [
    ["chat", chatEncoder, ({ text: content }) => ({ message: { role: "assistant", content } })],
    ["generate", (name) => generateEncoder(name, (ids) => ids), ({ text: response }) => ({ response })]
  ]
  for (const [name, make, output] of native) {
    it(`when ${name} is streamed on the native surface, then each line is the JSON of its object`, () => {
      fc.assert(
        fc.property(model, fc.array(frame, { maxLength: 5 }), (spelling, frames) => {
          const lines = frames.map((each) =>
            jsonText({
              model: spelling,
              created_at: each.createdAt,
              ...output(each),
              done: false
            })
          )
          assert.strictEqual(make(spelling).frames(frames), lines.map((line) => `${line}\n`).join(""))
        })
      )
    })
  }

  const openai: ReadonlyArray<
    readonly [string, (model: string) => Encoder, (text: string, first: boolean) => object]
  > = [
    [
      "chat",
      openaiEncoder,
      (content, first) => ({
        index: 0,
        delta: first ? { role: "assistant", content } : { content },
        finish_reason: null
      })
    ],
    [
      "a completion",
      (name) => completionEncoder(name, "echo"),
      (said, first) => ({ text: first ? `echo${said}` : said, index: 0, logprobs: null, finish_reason: null })
    ]
  ]
  for (const [name, make, choice] of openai) {
    it(`when ${name} is streamed as events, then each has the JSON of its object`, () => {
      fc.assert(
        fc.property(model, fc.array(frame, { maxLength: 6 }), fc.nat(6), (spelling, frames, split) => {
          const encoder = make(spelling)
          const written = [frames.slice(0, split), frames.slice(split)].flatMap((part) =>
            linesOf(encoder, part)
          )
          const expected = frames
            .filter((each, i) => i === 0 || each.text !== "")
            .map((each, i) =>
              jsonText({
                id: "",
                object: name === "chat" ? "chat.completion.chunk" : "text_completion",
                created: Math.floor(Date.parse(frames[0]?.createdAt ?? "") / 1000),
                model: spelling,
                system_fingerprint: "fp_tollgate",
                choices: [choice(each.text, i === 0)]
              })
            )
          assert.deepStrictEqual(
            written.map(withoutIds),
            expected.map((json) => `data: ${json}`)
          )
        })
      )
    })
  }
})
