import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { decodeEmbeddings } from "../../../src/backend/ollama/decodeEmbeddings.ts"

const float = fc.float({ noNaN: true, noDefaultInfinity: true })
const vector = fc.array(float, { minLength: 1, maxLength: 20 })

describe("the vectors of an answer", () => {
  it("when an answer has vectors, then they are read in order, one for each text, and nothing else is read", () => {
    fc.assert(
      fc.property(
        fc.array(vector, { minLength: 1, maxLength: 10 }),
        fc.constantFrom(0, 2),
        (vectors, indent) => {
          const text = JSON.stringify({ embeddings: vectors, prompt_eval_count: 3, secret: 1 }, null, indent)
          const input = vectors.map(() => "a")
          const { texts, ...answer } = decodeEmbeddings("embed", { input }, text) ?? { vectors: [] }
          // JSON has no -0.
          const read = vectors.map((each) => each.map((value) => value + 0))
          assert.deepStrictEqual(answer, { vectors: read, promptEvalCount: 3 })
          assert.deepStrictEqual(
            texts?.map((each) => JSON.parse(each)),
            read
          )
          assert.isUndefined(decodeEmbeddings("embed", { input: [...input, "b"] }, text))
        }
      )
    )
  })

  it("when other parts of an answer look like vectors, then the texts are the vectors', or there are none", () => {
    const other = fc.oneof(fc.json(), fc.constantFrom('"[9]"', "[9]", '"["', '"]"', '{"embeddings":[[9]]}'))
    fc.assert(
      fc.property(
        fc.array(vector, { minLength: 1, maxLength: 3 }),
        other,
        other,
        (vectors, before, after) => {
          const text = `{"a":${before},"embeddings":${JSON.stringify(vectors)},"b":${after}}`
          const answer = decodeEmbeddings("embed", { input: vectors.map(() => "a") }, text)
          const texts = answer?.texts?.map((each) => JSON.parse(each))
          assert.deepStrictEqual(texts ?? answer?.vectors, answer?.vectors)
        }
      )
    )
  })

  it("when the backend answers anything else, then there are no vectors, and reading does not throw", () => {
    fc.assert(
      fc.property(fc.oneof(fc.json(), fc.string()), fc.constantFrom("embed", "embeddings"), (text, kind) => {
        decodeEmbeddings(kind, { input: ["a"], prompt: "a" }, text)
      })
    )
  })

  it("when a text is empty, then there is no vector for it, and in a list there is one", () => {
    assert.deepStrictEqual(decodeEmbeddings("embed", { input: "" }, `{"embeddings":[]}`)?.vectors, [])
    assert.isUndefined(decodeEmbeddings("embed", { input: "" }, `{"embeddings":[[1]]}`))
    assert.deepStrictEqual(decodeEmbeddings("embed", { input: [""] }, `{"embeddings":[[1]]}`)?.vectors, [[1]])
    assert.isUndefined(decodeEmbeddings("embed", { input: [""] }, `{"embeddings":[[]]}`))
    assert.deepStrictEqual(decodeEmbeddings("embeddings", { prompt: "" }, `{"embedding":[]}`), {
      vectors: [[]],
      texts: ["[]"]
    })
    assert.isUndefined(decodeEmbeddings("embeddings", { prompt: "" }, `{"embedding":[1]}`))
    assert.isUndefined(decodeEmbeddings("embeddings", { prompt: "a" }, `{"embedding":[]}`))
  })

  it("when a number is not one, or not a float32, then there are no vectors", () => {
    for (const value of ["null", '"1"', "1e39", "-1e999", "[1]", "true"]) {
      assert.isUndefined(decodeEmbeddings("embed", { input: "a" }, `{"embeddings":[[0,${value}]]}`), value)
      assert.isUndefined(decodeEmbeddings("embeddings", { prompt: "a" }, `{"embedding":[0,${value}]}`), value)
    }
  })

  it("when an answer has more lists than texts, then it is not parsed: a list takes many times its text", () => {
    const text = `{"x":[${"[],".repeat(100)}[]],"embeddings":[[1]]}`
    assert.isUndefined(decodeEmbeddings("embed", { input: "a" }, text))
    assert.isDefined(decodeEmbeddings("embed", { input: "a" }, `{"x":[[],[]],"embeddings":[[1]]}`))
  })
})
