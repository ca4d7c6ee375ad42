/** Frames of many tokens: what of them is shown, and what they are charged. */
import { assert, describe, it } from "@effect/vitest"
import type { Frame } from "../../../src/domain/Frame.ts"
import { MeteredModel } from "../../support/MeteredModel.ts"
import {
  admitted,
  base,
  chunk,
  type Chunk,
  final,
  read,
  textIn,
  times,
  wish,
  word,
  wordsIn
} from "../../support/metered.ts"

describe("a frame with more than one token", () => {
  const words = (count: number) => "words ".repeat(count)

  for (const together of [true, false])
    it(`when the backend's count cannot be true, then of 10,000 words in a frame 100 tokens are shown${together ? ", with the end" : ""}`, () => {
      const model = new MeteredModel(5000)
      const one = admitted(model, wish({}, { maxTokens: 100 }))
      const [frame, last] = [{ ...base, text: words(10_000) }, final({ evalCount: 10_000 })]
      one.answer(together ? [[frame, last]] : [[frame], [last]])
      read(one)
      assert.strictEqual(textIn(one), words(10_000).slice(0, 400))
      assert.strictEqual(one.shown.at(-1)?.doneReason, "length")
      assert.strictEqual(one.shown.at(-1)?.evalCount, 100)
      assert.strictEqual(model.spent, 140, "all that was held")
    })

  it("when a text may fit and the final frame counts it, then it is shown whole; when nobody does, then it is cut", () => {
    const text = words(100)
    const ends: ReadonlyArray<readonly [string, ReadonlyArray<Chunk>]> = [
      [text, [[final({ promptEvalCount: 40, evalCount: 100 })]]],
      [text, [[{ ...base }], [final({ promptEvalCount: 40, evalCount: 100 })]]],
      [text.slice(0, 400), [[final({ promptEvalCount: 40, evalCount: 101 })]]],
      [text.slice(0, 400), [[final({})]]],
      // The connection breaks.
      [text.slice(0, 400), []],
      // By now it is more than 100 tokens by any measure.
      [text.slice(0, 400), [chunk(times(99, word)), [final({ evalCount: 100 })]]]
    ]
    for (const [shown, rest] of ends) {
      const model = new MeteredModel(5000)
      const one = admitted(model, wish({ tools: [] }, { maxTokens: 100 }))
      one.answer([[{ ...base, text }], ...rest])
      read(one)
      assert.strictEqual(textIn(one), shown)
      assert.strictEqual(one.over, true)
      assert.isAtMost(model.spent, 140)
      assert.strictEqual(model.spent, 140)
    }
  })

  it("when it is cut, then no sign is cut in half, and half a tool call is left out", () => {
    const model = new MeteredModel(5000)
    const one = admitted(model, wish({ tools: [] }, { maxTokens: 10 }))
    const thinking = "日本".repeat(10)
    const toolCalls = [{ name: "f", arguments: { a: words(100) } }]
    one.answer([[{ ...base, thinking, toolCalls }], [final({})]])
    read(one)
    assert.strictEqual(one.shown[0]?.thinking, "日本".repeat(10).slice(0, 13))
    assert.isUndefined(one.shown[0]?.toolCalls)
  })

  it("when the backend counts fewer tokens than its text can be, then what the text is at least is charged", () => {
    for (const [chunks, least] of [
      [times(400, word).map((frame): Chunk => [frame]), 400],
      [[[{ ...base, text: words(4000) }]], 750],
      [[[{ ...base, toolCalls: [{ name: "f", arguments: { a: words(4000) } }] }]], 751],
      [[[{ ...base, logprobs: Array.from({ length: 400 }, () => ({ token: "a", logprob: -1 })) }]], 400]
    ] as const satisfies ReadonlyArray<readonly [ReadonlyArray<Chunk>, number]>) {
      for (const evalCount of [0, 3]) {
        const model = new MeteredModel(50_000)
        const one = admitted(model, wish({}, { maxTokens: 5000 }))
        one.answer([...chunks, [final({ promptEvalCount: 40, evalCount })]])
        read(one)
        assert.strictEqual(model.spent, 40 + least)
        assert.strictEqual(one.shown.at(-1)?.evalCount, least)
      }
    }
  })

  it("when a token is a long run of one sign, then the backend's count is believed", () => {
    const model = new MeteredModel(5000)
    const one = admitted(model)
    const last = final({ promptEvalCount: 40, evalCount: 4 })
    one.answer([[{ ...base, text: `${" ".repeat(128)}${"─".repeat(64)}${"=".repeat(64)}` }], [last]])
    read(one)
    assert.strictEqual(one.shown.at(-1), last)
    assert.strictEqual(model.spent, 44)
  })

  for (const [name, frame] of Object.entries<Partial<Frame>>({
    "a tool call": { toolCalls: [{ name: "f", arguments: { a: words(100) } }] },
    "log probabilities alone": { logprobs: [{ token: words(100), logprob: -1 }] }
  }))
    it(`when nobody counted ${name} of 600 bytes, then it is charged a quarter of its bytes`, () => {
      for (const last of [final({}), final({ evalCount: 1e6 }), final({ doneReason: "load" }), undefined]) {
        const model = new MeteredModel(50_000)
        const one = admitted(model, wish({}, { maxTokens: 5000 }))
        one.answer([...times(10, { ...base, ...frame }).map((each): Chunk => [each]), [last ?? word]])
        read(one)
        assert.isAtLeast(model.spent, 40 + 1500)
        assert.isAtMost(model.spent, 40 + 1600)
        assert.isAtLeast(one.shown.length, 10, "and nothing is cut")
      }
    })

  it("when each frame is one token of any length a language has, then each is counted as one", () => {
    for (const text of [" a", " international", " сотрудничестве", "ประเทศไทย"]) {
      const model = new MeteredModel(5000)
      const one = admitted(model, wish({}, { maxTokens: 500 }))
      one.answer([chunk(times(300, { ...base, text })), chunk(times(200, { ...base, text })), [final({})]])
      read(one)
      assert.strictEqual(wordsIn(one), 500, "none is cut")
      assert.strictEqual(model.spent, 540)
    }
  })

  it("when an honest backend collects its whole bound in one frame, then it is shown whole", () => {
    const model = new MeteredModel(5000)
    const one = admitted(model, wish({ tools: [] }, { maxTokens: 300 }))
    // 10.5 bytes to a token: the most that was measured in any language
    const text = "с".repeat((300 * 10.5) / 2)
    one.answer([[{ ...base, text }], [final({ promptEvalCount: 40, evalCount: 300, doneReason: "length" })]])
    read(one)
    assert.strictEqual(one.shown[0]?.text, text)
    assert.strictEqual(model.spent, 340)
  })
})
