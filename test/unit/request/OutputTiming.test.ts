/** Plain output that a backend keeps back: what is held, what is charged, and how a model is heard to speak. */
import { assert, describe, it } from "@effect/vitest"
import { MeteredModel } from "../../support/MeteredModel.ts"
import { admitted, base, chunk, type Chunk, final, read, times, wish, word } from "../../support/metered.ts"

describe("a plain request of a model that keeps its output back", () => {
  it("when fifty come at once, then no more is charged than the budget, and what is written beyond it is at most a bound for each", () => {
    const model = new MeteredModel(20_000, false)
    const running = Array.from({ length: 50 }, () => model.admit(wish({}, { maxTokens: 4096 }))).filter(
      (request) => request !== undefined
    )
    const mayMake = running.reduce((sum, request) => sum + request.numPredict + 40, 0)
    assert.isAtMost(mayMake - 20_000, (running.length - 1) * 4096)
    for (const request of running) {
      const last = final({ promptEvalCount: 40, evalCount: request.numPredict })
      request.answer([[{ ...base, text: "words ".repeat(request.numPredict) }], [last]])
      read(request)
    }
    assert.strictEqual(running[0]?.shown.at(-1)?.doneReason, "length")
    assert.strictEqual(model.spent, 20_000)
    assert.isFalse(model.rates.speaks("k", "m"))
  })

  it("when the client leaves before anything came, then it is charged what it held, and later what it saw", () => {
    const model = new MeteredModel(5000, false)
    const [early, late] = [0, 1].map(() => admitted(model, wish({}, { maxTokens: 4096 })))
    early?.leave()
    assert.deepStrictEqual(early?.charged, { tokensIn: 40, tokensOut: 2048, source: "estimated" })
    late?.answer([[word], [final({})]])
    late?.step()
    late?.leave()
    assert.deepStrictEqual(late?.charged, { tokensIn: 40, tokensOut: 1, source: "counted" })
  })

  it("when the model has spoken in eight reads, then the next requests hold a part of their bound", () => {
    const model = new MeteredModel(20_000, false)
    const one = admitted(model)
    one.answer([...times(8, word).map((frame): Chunk => [frame]), [final({ evalCount: 8 })]])
    for (let i = 0; i < 7; i += 1) one.step()
    assert.strictEqual(admitted(model, wish({}, { maxTokens: 1000 })).hold.held, 1040)
    one.step()
    assert.strictEqual(admitted(model, wish({}, { maxTokens: 1000 })).hold.held, 296)
  })

  it("when more comes at once than is held ahead, then its key is not trusted with the next ones", () => {
    for (const chunks of [
      [chunk(times(257, word))],
      [chunk(times(200, word)), chunk(times(57, word))],
      [[{ ...base, text: "words ".repeat(200) }]],
      [[final({ evalCount: 257 })]]
    ] satisfies ReadonlyArray<ReadonlyArray<Chunk>>) {
      const model = new MeteredModel(20_000)
      const one = admitted(model)
      one.answer([...chunks, [final({})]])
      // Both reads within a tenth of a second
      model.msBetweenReads = 0
      read(one)
      assert.isFalse(model.rates.speaks("k", "m"))
      assert.strictEqual(admitted(model).hold.held, 1040)
    }
  })
})
