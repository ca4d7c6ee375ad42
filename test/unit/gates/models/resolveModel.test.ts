import { guards } from "../../../../src/backend/ollama/guards/guards.ts"
import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import type { Json } from "../../../../src/domain/Inference.ts"
import type { Model } from "../../../../src/domain/Model.ts"
import { prepare } from "../../../../src/domain/prepare.ts"
import { checkCapabilities } from "../../../../src/gates/models/resolveModel.ts"
import { modelNamed, requestOf } from "../../../support/permits.ts"

const thinker: Model = { ...modelNamed("t"), capabilities: ["completion", "thinking"] }
const plain: Model = { ...modelNamed("p"), capabilities: ["completion"] }
const { capabilities: _unknown, ...silent } = plain

const wanting = (think: Json, thinkIfAble: boolean) =>
  requestOf({ body: { messages: [], think }, ...(thinkIfAble ? { thinkIfAble } : {}) })
const refused = (think: Json, model: Model, wish = false): boolean =>
  Result.isFailure(checkCapabilities(wanting(think, wish), model, guards))

describe("a request and its model", () => {
  it("when it must think and the model is known not to, then it is refused", () => {
    for (const think of [true, "low", "max"]) {
      assert.isTrue(refused(think, plain))
      assert.isFalse(refused(think, thinker))
      assert.isFalse(refused(think, silent), "nothing is refused on what is not known")
      assert.isFalse(refused(think, plain, true), "a wish is no demand")
    }
    assert.isFalse(refused(false, plain))
  })

  it("when the tokenizer overflows on a run of the text, then it is refused", () => {
    const body = { messages: [{ role: "user", content: "7".repeat(5000) }] }
    const check = (tokenizer: Model["tokenizer"]) =>
      checkCapabilities(
        requestOf({ body }),
        { ...plain, ...(tokenizer === undefined ? {} : { tokenizer }) },
        guards
      )
    const refusal = check({ kind: "gpt2", split: "qwen2" })
    assert.strictEqual(
      Result.isFailure(refusal) ? refusal.failure.detail : "",
      "messages: this model takes at most 4096 letters, digits, signs or blanks in a row"
    )
    for (const tokenizer of [
      undefined,
      { kind: "llama", split: "default" },
      { kind: "gpt2", split: "llama-bpe" }
    ])
      assert.isTrue(Result.isSuccess(check(tokenizer)), "nothing is refused on what is not known")
  })

  it("when the model lacks what a request only wishes for, then the wish is left out, and only then", () => {
    assert.isUndefined(prepare(wanting("high", true), plain).think)
    assert.isUndefined(prepare(wanting(false, true), plain).think)
    for (const model of [thinker, silent])
      assert.strictEqual(prepare(wanting("high", true), model).think, "high")
    assert.strictEqual(prepare(wanting(false, false), plain).think, false)
  })
})
