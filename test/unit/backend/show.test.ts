import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { decodeDescription, decodeShow } from "../../../src/backend/ollama/decodeModels.ts"

const allowed = new Set([
  "license",
  "parameters",
  "modified_at",
  "requires",
  "renderer",
  "parser",
  "details",
  "model_info",
  "projector_info",
  "tensors",
  "capabilities"
])

describe("the description of a model", () => {
  it("when a model is described, then the description has the keys of the list only, and always those that clients index", () => {
    const hidden = fc.constantFrom(
      "system",
      "template",
      "modelfile",
      "messages",
      "remote_host",
      "verbose",
      "license"
    )
    fc.assert(
      fc.property(fc.dictionary(fc.oneof(hidden, fc.string()), fc.jsonValue()), (described) => {
        const shown = decodeShow(JSON.stringify(described)) ?? {}
        assert.isTrue(Object.keys(shown).every((key) => allowed.has(key)))
        assert.isObject(shown["model_info"])
        assert.isArray(shown["capabilities"])
        assert.strictEqual(Reflect.get(Object(shown["details"]), "parent_model"), "")
      })
    )
  })

  it("when a description has a chat template at any depth or spelling, then it is taken out and its neighbours stay", () => {
    const info = {
      "general.name": "x",
      "tokenizer.chat_template": "SECRET",
      "tokenizer.Chat_Template.rag": "SECRET",
      "tokenizer.chat-template": "SECRET",
      tokens: ["a", null, ["b"]],
      deep: { list: [{ "x.chat_template.y": ["SECRET"], kept: 1 }] }
    }
    for (const field of ["model_info", "projector_info"] as const) {
      const shown = decodeShow(JSON.stringify({ [field]: info }))
      assert.deepStrictEqual(shown?.[field], {
        "general.name": "x",
        tokens: ["a", null, ["b"]],
        deep: { list: [{ kept: 1 }] }
      })
    }
  })

  it("when metadata is absurdly deep or has hostile names, then it is read without an error", () => {
    const depth = 5000
    const deep = `{"model_info":{"a":${"[".repeat(depth)}${"]".repeat(depth)},"__proto__":{"x":1}}}`
    const shown = decodeShow(deep)
    assert.isTrue(shown === undefined || JSON.stringify(shown).length < 500)
    assert.strictEqual(Reflect.get({}, "x"), undefined)
  })

  it("when a model is described, then discovery learns what it can do, and nothing that cannot be true", () => {
    const told = (value: unknown) => decodeDescription(JSON.stringify(value))
    const info = { "general.architecture": "llama", "llama.context_length": 4096, "clip.context_length": 77 }
    assert.deepStrictEqual(told({ capabilities: ["completion"], model_info: info }), {
      capabilities: ["completion"],
      contextLength: 4096
    })
    assert.deepStrictEqual(told({}), {})
    const words = { "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2" }
    assert.deepStrictEqual(told({ model_info: words }), { tokenizer: { kind: "gpt2", split: "qwen2" } })
    for (const split of [undefined, 5, "x".repeat(65)]) {
      assert.deepStrictEqual(told({ model_info: { ...words, "tokenizer.ggml.pre": split } }), {
        tokenizer: { kind: "gpt2", split: "" }
      })
    }
    for (const kind of [null, 5, "x".repeat(65)])
      assert.deepStrictEqual(told({ model_info: { ...words, "tokenizer.ggml.model": kind } }), {})
    for (const length of [0, -1, 1.5, 1e300, "4096", null])
      assert.deepStrictEqual(told({ model_info: { ...info, "llama.context_length": length } }), {})
    for (const capabilities of [null, "thinking", [1]]) assert.deepStrictEqual(told({ capabilities }), {})
    const many = [...Array.from({ length: 100 }, (_, i) => `c${i}`), "x".repeat(65)]
    assert.lengthOf(told({ capabilities: many })?.capabilities ?? [], 64)
    const parameters =
      'stop                           "<|end|>"\nnum_ctx                        8192\ntemperature 1'
    assert.strictEqual(told({ parameters })?.numCtx, 8192)
    for (const none of ["", "num_ctx many", "xnum_ctx 5", "num_ctx 0", "num_ctx -1", 5, null]) {
      assert.isUndefined(told({ parameters: none })?.numCtx, String(none))
    }
    assert.isUndefined(decodeDescription("[]"))
  })

  it("when the answer is no object, then there is no description", () => {
    for (const text of ["", "[]", "null", '"x"', "{", "5"]) assert.isUndefined(decodeShow(text), text)
  })
})
