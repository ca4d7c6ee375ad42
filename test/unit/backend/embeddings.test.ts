import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import type { JsonObject } from "../../../src/domain/Inference.ts"
import type { Embeddings } from "../../../src/domain/Frame.ts"
import { prepared, requestOf } from "../../support/permits.ts"
import { decodeEmbeddings as decode } from "../../../src/backend/ollama/decodeEmbeddings.ts"
import { atMost } from "../../support/wait.ts"

const float = fc.float({ noNaN: true, min: -(2 ** 66), max: 2 ** 66 })
/** A text that is refused is refused for base64 too. */
const decodeEmbeddings = (kind: "embed" | "embeddings", body: JsonObject, text: string) => {
  const [answer, base64] = [false, true].map((base64) =>
    decode({ ...prepared(requestOf({ kind, body })), base64 }, Buffer.from(text))
  )
  assert.strictEqual(base64?.vectors.length, answer?.vectors.length)
  return answer && { ...answer, vectors: answer.vectors.map(String) }
}
const numbersOf = (answer: Embeddings | undefined): ReadonlyArray<unknown> =>
  answer?.vectors.map((text) => JSON.parse(String(text))) ?? []
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
          const answer = decodeEmbeddings("embed", { input }, text)
          assert.deepStrictEqual(
            numbersOf(answer),
            numbersOf({ vectors: vectors.map((each) => JSON.stringify(each)) })
          )
          assert.deepStrictEqual({ ...answer, vectors: [] }, { vectors: [], promptEvalCount: 3 })
          assert.isUndefined(decodeEmbeddings("embed", { input: [...input, "b"] }, text))
        }
      )
    )
  })

  it("when other parts of an answer look like vectors, then the vectors are those of their field, or there are none", () => {
    const other = fc.oneof(fc.json(), fc.constantFrom('"[9]"', "[9]", '"["', '"]"', '{"embeddings":[[9]]}'))
    fc.assert(
      fc.property(
        fc.array(vector, { minLength: 1, maxLength: 3 }),
        other,
        other,
        (vectors, before, after) => {
          const text = `{"a":${before},"embeddings":${JSON.stringify(vectors)},"b":${after}}`
          const answer = decodeEmbeddings("embed", { input: vectors.map(() => "a") }, text)
          const texts = vectors.map((each) => JSON.stringify(each))
          assert.deepStrictEqual(answer?.vectors ?? texts, texts)
        }
      )
    )
  })

  it("when the backend answers anything else, then there are no vectors, and reading does not throw", () => {
    fc.assert(
      fc.property(fc.oneof(fc.json(), fc.string()), fc.constantFrom("embed", "embeddings"), (text, kind) => {
        decodeEmbeddings(kind, kind === "embed" ? { input: ["a"] } : { prompt: "a" }, text)
      })
    )
  })

  it("when a list has the characters of numbers, then it is a vector only if it is JSON", () => {
    const text = fc.string({ unit: fc.constantFrom(..."0123456789.eE+-, \n"), minLength: 1, maxLength: 12 })
    fc.assert(
      fc.property(text, (numbers) => {
        const answer = decodeEmbeddings("embed", { input: "a" }, `{"embeddings":[[${numbers}]]}`)
        if (answer !== undefined) assert.deepStrictEqual(numbersOf(answer), [JSON.parse(`[${numbers}]`)])
      }),
      { numRuns: 2000 }
    )
  })

  it("when a text is empty, then there is no vector for it, and in a list there is one", () => {
    assert.deepStrictEqual(decodeEmbeddings("embed", { input: "" }, `{"embeddings":[]}`)?.vectors, [])
    assert.isUndefined(decodeEmbeddings("embed", { input: "" }, `{"embeddings":[[1]]}`))
    assert.deepStrictEqual(decodeEmbeddings("embed", { input: [""] }, `{"embeddings":[[1]]}`)?.vectors, [
      "[1]"
    ])
    assert.isUndefined(decodeEmbeddings("embed", { input: [""] }, `{"embeddings":[[]]}`))
    assert.deepStrictEqual(decodeEmbeddings("embeddings", { prompt: "" }, `{"embedding":[]}`), {
      vectors: ["[]"]
    })
    assert.isUndefined(decodeEmbeddings("embeddings", { prompt: "" }, `{"embedding":[1]}`))
    assert.isUndefined(decodeEmbeddings("embeddings", { prompt: "a" }, `{"embedding":[]}`))
  })

  it("when a client asks for base64, then it decodes each number as float32, in order", () => {
    // JSON has no -0.
    const float32 = float.map((value) => value + 0)
    const lists = fc.array(fc.array(float32, { minLength: 1, maxLength: 40 }), { minLength: 1, maxLength: 5 })
    fc.assert(
      fc.property(lists, (vectors) => {
        const request = { kind: "embed", inputs: vectors.length, base64: true } as const
        const answer = decode(request, Buffer.from(JSON.stringify({ embeddings: vectors })))
        const decoded = answer?.vectors.map((text) => {
          const bytes = Buffer.from(JSON.parse(String(text)), "base64")
          return Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readFloatLE(4 * i))
        })
        assert.deepStrictEqual(decoded, vectors)
      })
    )
  })

  it("when a part of an answer looks like the mark of a vector, then it stands for none", () => {
    for (const place of ['"0"', "[[0]]", '["0"]', "[0,null]", "0", "[1e99]", "[]"])
      assert.isUndefined(
        decodeEmbeddings("embed", { input: "a" }, `{"x":[7],"embeddings":[${place}]}`),
        place
      )
  })

  it("when a number is not one, or not a float32, then there are no vectors", () => {
    for (const value of [
      "null",
      '"1"',
      "1e39",
      "-1e999",
      "1".repeat(39),
      "[1]",
      "true",
      "01",
      "1.",
      ".5",
      "+1",
      "1e",
      "0x1",
      "1 2",
      "NaN",
      "",
      ",2",
      "a:b",
      "}",
      "null,true",
      "\u0085",
      "1\u00852"
    ]) {
      assert.isUndefined(decodeEmbeddings("embed", { input: "a" }, `{"embeddings":[[0,${value}]]}`), value)
      assert.isUndefined(decodeEmbeddings("embeddings", { prompt: "a" }, `{"embedding":[0,${value}]}`), value)
    }
  })

  it("when a vector has more numbers than any model, then it is refused, and the stack does not overflow", () => {
    const of = (numbers: number) => `{"embedding":[${"1,".repeat(numbers - 1)}1]}`
    assert.isDefined(decodeEmbeddings("embeddings", { prompt: "a" }, of(65_536)))
    for (const numbers of [65_537, 1_000_000, 8_000_000])
      assert.isUndefined(decodeEmbeddings("embeddings", { prompt: "a" }, of(numbers)))
  })

  it("when a vector, or the answer beside its vectors, is longer than any, then it is not read", () => {
    const spaced = (blanks: number) => `{"embedding":[${`1,${" ".repeat(blanks)}`.repeat(60_000)}1]}`
    assert.isDefined(decodeEmbeddings("embeddings", { prompt: "a" }, spaced(20)))
    assert.isUndefined(decodeEmbeddings("embeddings", { prompt: "a" }, spaced(40)))
    const beside = (bytes: number) => `{"x":"${"a".repeat(bytes)}","embeddings":[[1]]}`
    assert.isDefined(decodeEmbeddings("embed", { input: "a" }, beside(200_000)))
    assert.isUndefined(decodeEmbeddings("embed", { input: "a" }, beside(300_000)))
  })

  it("when an answer has more lists than texts, then it is not parsed: a list takes many times its text", () => {
    const text = `{"x":[${"[],".repeat(100)}[]],"embeddings":[[1]]}`
    assert.isUndefined(decodeEmbeddings("embed", { input: "a" }, text))
    assert.isDefined(decodeEmbeddings("embed", { input: "a" }, `{"x":[[],[]],"embeddings":[[1]]}`))
  })

  it("when an answer is nothing but lists, then it is refused at once: to cut each of them took seconds", () => {
    for (const list of ["[", "[ ", "[1]"]) {
      const text = list.repeat(4_000_000)
      const before = process.cpuUsage()
      assert.isUndefined(decodeEmbeddings("embed", { input: ["a"] }, text))
      // CPU, because a busy machine makes everything take longer.
      assert.isBelow(process.cpuUsage(before).user / 1000, atMost(1000))
    }
  })
})
