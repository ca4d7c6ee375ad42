import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import type { Json } from "../../../src/domain/Inference.ts"
import type { Model } from "../../../src/domain/Model.ts"
import { dropUnsupported, checkCapabilities } from "../../../src/request/capabilities.ts"
import { callOf, modelNamed } from "../../support/permits.ts"

const thinker: Model = { ...modelNamed("t"), capabilities: ["completion", "thinking"] }
const plain: Model = { ...modelNamed("p"), capabilities: ["completion"] }
const { capabilities: _unknown, ...silent } = plain

const wanting = (think: Json, thinkIfAble: boolean) =>
  callOf({ body: { messages: [], think }, ...(thinkIfAble ? { thinkIfAble } : {}) }).request
const refused = (think: Json, model: Model, wish = false): boolean =>
  Result.isFailure(Effect.runSync(Effect.result(checkCapabilities(wanting(think, wish), model))))

describe("a request and its model", () => {
  it("do not suit each other when it must think and is known not to", () => {
    for (const think of [true, "low", "max"]) {
      assert.isTrue(refused(think, plain))
      assert.isFalse(refused(think, thinker))
      assert.isFalse(refused(think, silent), "nothing is refused on what is not known")
      assert.isFalse(refused(think, plain, true), "a wish is no demand")
    }
    assert.isFalse(refused(false, plain))
  })

  it("are made to suit by leaving a wish out, and only then", () => {
    assert.deepStrictEqual(dropUnsupported(wanting("high", true), plain).body, { messages: [] })
    assert.deepStrictEqual(dropUnsupported(wanting(false, true), plain).body, { messages: [] })
    for (const model of [thinker, silent])
      assert.strictEqual(dropUnsupported(wanting("high", true), model).body["think"], "high")
    assert.strictEqual(dropUnsupported(wanting(false, false), plain).body["think"], false)
  })
})
