/** How much of its output a request holds at admission, and what bound it is sent with. */
import { assert, describe, it } from "@effect/vitest"
import type { JsonObject } from "../../../src/domain/Inference.ts"
import {
  expectedOutput,
  leastUnseen,
  numPredictOf,
  outputPlanOf,
  tokensToHold
} from "../../../src/domain/outputPlan.ts"
import { callOf, modelNamed } from "../../support/permits.ts"

const plain = modelNamed("m")
const thinker = { ...plain, capabilities: ["completion", "thinking"] }
const planFor = (body: JsonObject, options: JsonObject = {}, model = plain, speaks = true) =>
  outputPlanOf(callOf({ body: { messages: [], ...body }, options }).request, model, speaks)

describe("a request", () => {
  it("when it asks for text only, then it holds a small part of its bound", () => {
    for (const body of [
      {},
      { system: "s", truncate: true },
      { think: false },
      { prompt: "p", suffix: "s" }
    ]) {
      assert.isFalse(planFor(body, { temperature: 1, seed: 3 }).unseen, JSON.stringify(body))
    }
    const plan = planFor({})
    assert.deepStrictEqual(tokensToHold(plan, 40, 4096, 9000), { tokens: 40 + expectedOutput, least: 41 })
    assert.deepStrictEqual(tokensToHold(plan, 40, 100, 0), { tokens: 140, least: 41 })
    assert.strictEqual(numPredictOf(plan, { available: 1000 }, 40, 4096), 960)
  })

  it("when its model is not known to show output early, then it holds what such answers used", () => {
    const plan = planFor({}, {}, plain, false)
    assert.deepStrictEqual(plan, { runs: 1, unseen: true, collects: false })
    assert.deepStrictEqual(tokensToHold(plan, 40, 4096, 3000), { tokens: 3040, least: 41 })
    assert.strictEqual(numPredictOf(plan, { available: 1000 }, 40, 4096), 960)
  })

  it("when it can make a backend collect its output, or has an unknown field, then it holds what such answers used, within its bound", () => {
    const fields = [
      { tools: [] },
      { format: "json" },
      { think: true },
      { think: "low" },
      { logprobs: true },
      { not_invented_yet: 1 }
    ]
    for (const body of fields) assert.isTrue(planFor(body).unseen, JSON.stringify(body))
    for (const options of [{ stop: ["x"] }, { not_invented_yet: 1 }])
      assert.isTrue(planFor({}, options).unseen)
    const plan = planFor({ tools: [] })
    assert.deepStrictEqual(tokensToHold(plan, 40, 65_536, 0), { tokens: 40 + leastUnseen, least: 41 })
    assert.deepStrictEqual(tokensToHold(plan, 40, 65_536, 5000), { tokens: 5040, least: 41 })
    assert.deepStrictEqual(tokensToHold(plan, 40, 100, 5000), { tokens: 140, least: 41 })
    assert.strictEqual(numPredictOf(plan, { available: 1000 }, 40, 4096), 960)
    assert.strictEqual(numPredictOf(plan, { available: 10 }, 40, 4096), 1)
  })

  it("when it has a schema and the model thinks, then it holds two runs, and the runs share what remains", () => {
    const plan = planFor({ format: "json" }, {}, thinker)
    assert.deepStrictEqual(plan, { runs: 2, unseen: true, collects: true })
    assert.deepStrictEqual(tokensToHold(plan, 40, 100, 0), { tokens: 240, least: 42 })
    assert.strictEqual(numPredictOf(plan, { available: 1000 }, 40, 100), 100)
    assert.strictEqual(numPredictOf(plan, { available: 141 }, 40, 100), 50)
    assert.strictEqual(planFor({ format: "json", think: false }, {}, thinker).runs, 1)
    assert.strictEqual(planFor({ format: "json" }).runs, 1)
    const { capabilities: _unknown, ...silent } = plain
    assert.strictEqual(planFor({ format: "json" }, {}, silent).runs, 2)
  })
})
