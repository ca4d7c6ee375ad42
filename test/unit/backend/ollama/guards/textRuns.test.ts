import { assert, describe, it } from "@effect/vitest"
import fc from "fast-check"
import type { JsonObject } from "../../../../../src/domain/Inference.ts"
import {
  fieldWithLongRun,
  maxRun,
  overflowsOnLongRuns
} from "../../../../../src/backend/ollama/guards/textRuns.ts"

const user = (content: string) => ({ role: "user", content })
const refused = (body: JsonObject, field: string) => assert.strictEqual(fieldWithLongRun(body), field)
const accepted = (body: JsonObject) => assert.isUndefined(fieldWithLongRun(body))

/** Longest run of one class, character by character. */
const longestRun = (text: string): number => {
  const runs = [
    /[\p{L}\p{M}]+/gu,
    /\p{N}+/gu,
    /\p{White_Space}+/gu,
    /[^\p{White_Space}\p{L}\p{N}]+/gu
  ].flatMap((pattern) => text.match(pattern) ?? [])
  return Math.max(0, ...runs.map((run) => run.length))
}

describe("runs of characters", () => {
  for (const unit of ["7", "!", "a", "é", "漢", "๓", " ", "\n", "\u0301", "🙂", "𝔘", "\ud800"]) {
    it(`when ${JSON.stringify(unit)} is repeated, then the bound is accepted wherever it stands, and not one more`, () => {
      const most = unit.repeat(maxRun / unit.length)
      const other = /\p{N}/u.test(unit) ? "!" : "7"
      for (const before of ["", other, `x y${other}`.repeat(1999)]) {
        for (const after of ["", other, `${other} x`.repeat(1999)]) {
          accepted({ prompt: `${before}${most}${after}` })
          refused({ prompt: `${before}${most}${unit}${after}` }, "prompt")
        }
      }
    })
  }

  it("when texts are random, then exactly those with a long run are refused", () => {
    const piece = fc
      .tuple(
        fc.constantFrom("a", "é\u0301", "\u0301", "7", " ", "\n", "!", "🙂", "a!", "漢"),
        fc.integer({ min: 1, max: 5000 })
      )
      .map(([unit, length]) => unit.repeat(length))
    fc.assert(
      fc.property(fc.array(piece, { minLength: 1, maxLength: 6 }), (pieces) => {
        const prompt = pieces.join("")
        if (longestRun(prompt) > maxRun) refused({ prompt }, "prompt")
        else accepted({ prompt })
      }),
      { numRuns: 300, seed: 1 }
    )
  })

  it("when the run stands in any text that a template prints, then it is refused", () => {
    const long = "7".repeat(maxRun + 1)
    const tool = (parameters: JsonObject, description = "") => ({
      type: "function",
      function: { name: "f", description, parameters }
    })
    const call = { function: { name: "f", arguments: { [long]: 1 } } }
    for (const messages of [
      [user("x"), user(long)],
      [{ ...user(""), role: "assistant", thinking: long }],
      [{ role: "assistant", content: "", tool_calls: [call] }]
    ]) {
      refused({ messages }, "messages")
    }
    for (const one of [tool({ type: "object", description: long }), tool({}, long)])
      refused({ messages: [user("x")], tools: [one] }, "tools")
    for (const field of ["prompt", "system", "suffix", "a field of tomorrow"])
      refused({ prompt: "x", [field]: long }, field)
    refused({ input: ["x", long] }, "input")
  })

  it("when messages make a run together, then they are refused", () => {
    const half = maxRun / 2
    accepted({ messages: [user("7".repeat(half)), user("7".repeat(half))] })
    for (const unit of ["7", "\n"])
      refused({ messages: Array.from({ length: 3 }, () => user(unit.repeat(half))) }, "messages")
    refused({ messages: Array.from({ length: half + 2 }, () => user("")) }, "messages")
  })

  it("when the run is in an image, then it is accepted: an image is no text", () => {
    const images = ["A".repeat(40_000)]
    accepted({ messages: [{ ...user("x"), images }] })
    accepted({ prompt: "x", images })
    const call = { function: { name: "f", arguments: { images } } }
    refused({ messages: [{ role: "assistant", content: "", tool_calls: [call] }] }, "messages")
  })

  it("when a tokenizer splits by expressions, then long runs overflow it, unless llama.cpp has a loop for it", () => {
    for (const split of ["default", "qwen2", "gpt-4o", "tekken", "deepseek-v3", "", "of tomorrow"])
      assert.isTrue(overflowsOnLongRuns({ kind: "gpt2", split }), split)
    for (const split of ["llama-bpe", "gpt-2", "starcoder"])
      assert.isFalse(overflowsOnLongRuns({ kind: "gpt2", split }), split)
    for (const kind of ["llama", "bert", "t5"])
      assert.isFalse(overflowsOnLongRuns({ kind, split: "default" }))
  })
})
