import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import type { ImageInfo, Json } from "../../../../src/domain/Inference.ts"
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
  Result.isFailure(checkCapabilities(wanting(think, wish), model))

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

  it("when an image would end the runner of a model with a projector or of Qwen, then it is refused", () => {
    const png: ImageInfo = { format: "png", width: 64, height: 64, complete: true }
    const fails = (families: Json, ...images: ReadonlyArray<ImageInfo>) =>
      Result.isFailure(
        checkCapabilities(requestOf({ body: { messages: [] }, images }), {
          ...plain,
          details: { families }
        })
      )
    const llava = ["llama", "clip"]
    for (const format of ["webp", "sound"] as const) assert.isTrue(fails(llava, png, { ...png, format }))
    assert.isTrue(fails(llava, { ...png, complete: false }))
    assert.isFalse(fails(llava, png, { ...png, format: "jpeg", width: 1 }))
    for (const family of ["qwen25vl", "qwen3vl", "qwen3vlmoe", "qwen2.5vl"]) {
      assert.isFalse(fails([family], png, { ...png, width: 32, height: 6400, complete: false }))
      for (const sides of [
        { width: 31, height: 64 },
        { width: 64, height: 31 },
        { width: 32, height: 6401 },
        { width: 0, height: 0 }
      ])
        assert.isTrue(fails([family], png, { ...png, ...sides }))
    }
    const odd = { ...png, format: "webp", width: 1, complete: false } as const
    for (const families of [["gemma3"], ["qwen2"], null, "clip"]) assert.isFalse(fails(families, odd))
  })

  it("when the tokenizer overflows on a run of the text, then it is refused", () => {
    const body = { messages: [{ role: "user", content: "7".repeat(5000) }] }
    const check = (tokenizer: Model["tokenizer"]) =>
      checkCapabilities(requestOf({ body }), {
        ...plain,
        ...(tokenizer === undefined ? {} : { tokenizer })
      })
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
