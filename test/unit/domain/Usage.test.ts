import { assert, describe, it } from "@effect/vitest"
import type { Frame } from "../../../src/domain/Frame.ts"
import { usageOf } from "../../../src/domain/Usage.ts"

const seen = {
  frames: 7,
  least: 8,
  estimate: 9,
  firstRun: 0,
  promptEstimate: 12,
  promptBytes: 50,
  maxOutput: 100
}
const final = (counts: Partial<Frame>): Frame => ({
  createdAt: "",
  text: "",
  done: true,
  doneReason: "stop",
  ...counts
})

describe("the charge for a finished request", () => {
  it("when the backend counted, then the charge is its counts", () => {
    assert.deepStrictEqual(usageOf(final({ promptEvalCount: 9, evalCount: 30 }), seen), {
      tokensIn: 9,
      tokensOut: 30,
      source: "backend"
    })
  })

  it("when the backend had a part of the prompt in its cache, then that part is known and nothing is charged less", () => {
    const charged = { tokensIn: 9, tokensOut: 30, source: "backend" } as const
    const usage = (cached: number, more: Partial<Frame> = {}) =>
      usageOf(final({ promptEvalCount: 9, promptEvalCachedCount: cached, evalCount: 30, ...more }), seen)
    assert.deepStrictEqual(usage(0), { ...charged, tokensCached: 0 })
    assert.deepStrictEqual(usage(8), { ...charged, tokensCached: 8 })
    assert.deepStrictEqual(usage(1000), { ...charged, tokensCached: 9 })
    // A part of a count that is not believed is not known.
    assert.deepStrictEqual(usage(8, { promptEvalCount: 1e12 }), {
      tokensIn: 12,
      tokensOut: 30,
      source: "counted"
    })
  })

  it("when a count is absent or absurd, then the charge is what was seen", () => {
    for (const evalCount of [undefined, -5, 1e30, 3.7, Number.NaN, Infinity, 101]) {
      const usage = usageOf(
        final({ promptEvalCount: 9, ...(evalCount === undefined ? {} : { evalCount }) }),
        seen
      )
      assert.deepStrictEqual(usage, { tokensIn: 9, tokensOut: 9, source: "counted" }, String(evalCount))
    }
    for (const promptEvalCount of [-1, 1e12, 0.5]) {
      const usage = usageOf(final({ promptEvalCount, evalCount: 30 }), seen)
      assert.deepStrictEqual(
        usage,
        { tokensIn: 12, tokensOut: 30, source: "counted" },
        String(promptEvalCount)
      )
    }
  })

  it("when the backend counts fewer tokens than its text can be, then it is what the text is at least", () => {
    for (const evalCount of [0, 3, 7]) {
      const usage = usageOf(final({ promptEvalCount: 9, evalCount }), seen)
      assert.deepStrictEqual(usage, { tokensIn: 9, tokensOut: 8, source: "counted" }, String(evalCount))
    }
    const usage = usageOf(final({ promptEvalCount: 9, evalCount: 8 }), seen)
    assert.deepStrictEqual(usage, { tokensIn: 9, tokensOut: 8, source: "backend" })
    const twoRuns = usageOf(final({ promptEvalCount: 9, evalCount: 2 }), { ...seen, firstRun: 5 })
    assert.deepStrictEqual(twoRuns, { tokensIn: 4, tokensOut: 8, source: "counted" })
  })

  it("when the backend tells cached tokens, then its count has both of two runs", () => {
    const both = usageOf(final({ promptEvalCount: 9, promptEvalCachedCount: 0, evalCount: 10 }), {
      ...seen,
      firstRun: 5
    })
    assert.deepStrictEqual(both, { tokensIn: 9, tokensCached: 0, tokensOut: 10, source: "backend" })
  })

  it("when a model was only loaded, then nothing is charged", () => {
    const nothing = { tokensIn: 0, tokensOut: 0, source: "backend" }
    for (const doneReason of ["load", "unload"]) {
      assert.deepStrictEqual(
        usageOf(final({ doneReason }), { ...seen, frames: 0, least: 0, estimate: 0 }),
        nothing
      )
    }
  })

  it("when an answer with output says that the model was only loaded, then the charge is what was seen", () => {
    const usage = usageOf(final({ doneReason: "load" }), seen)
    assert.deepStrictEqual(usage, { tokensIn: 12, tokensOut: 9, source: "counted" })
  })
})
