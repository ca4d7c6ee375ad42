import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { decodeEmbeddings } from "../../../src/backend/decodeEmbeddings.ts"

const float = fc.float({ noNaN: true, noDefaultInfinity: true })
const vector = fc.array(float, { minLength: 1, maxLength: 20 })

describe("the vectors of an answer", () => {
  it("come out as they were said, one per text", () => {
    fc.assert(
      fc.property(fc.array(vector, { maxLength: 10 }), (vectors) => {
        const text = JSON.stringify({ embeddings: vectors, prompt_eval_count: 3, model: "x", secret: 1 })
        const input = vectors.map(() => "a")
        assert.deepStrictEqual(decodeEmbeddings("embed", { input }, text), {
          // JSON has no -0.
          vectors: vectors.map((each) => each.map((value) => value + 0)),
          promptEvalCount: 3
        })
        assert.isUndefined(decodeEmbeddings("embed", { input: [...input, "b"] }, text))
      })
    )
  })

  it("never throw, whatever the backend says", () => {
    fc.assert(
      fc.property(fc.oneof(fc.json(), fc.string()), fc.constantFrom("embed", "embeddings"), (text, kind) => {
        decodeEmbeddings(kind, { input: ["a"], prompt: "a" }, text)
      })
    )
  })

  it("are none for an empty text and one for an empty text in a list", () => {
    assert.deepStrictEqual(decodeEmbeddings("embed", { input: "" }, `{"embeddings":[]}`), { vectors: [] })
    assert.isUndefined(decodeEmbeddings("embed", { input: "" }, `{"embeddings":[[1]]}`))
    assert.deepStrictEqual(decodeEmbeddings("embed", { input: [""] }, `{"embeddings":[[1]]}`), {
      vectors: [[1]]
    })
    assert.deepStrictEqual(decodeEmbeddings("embeddings", { prompt: "" }, `{"embedding":[]}`), {
      vectors: [[]]
    })
    assert.isUndefined(decodeEmbeddings("embeddings", { prompt: "" }, `{"embedding":[1]}`))
    assert.isUndefined(decodeEmbeddings("embeddings", { prompt: "a" }, `{"embedding":[]}`))
  })

  it("are no vectors when a number is none, or none that a float32 can hold", () => {
    for (const value of ["null", '"1"', "1e39", "-1e999", "[1]", "true"]) {
      assert.isUndefined(decodeEmbeddings("embed", { input: "a" }, `{"embeddings":[[0,${value}]]}`), value)
      assert.isUndefined(decodeEmbeddings("embeddings", { prompt: "a" }, `{"embedding":[0,${value}]}`), value)
    }
  })
})
