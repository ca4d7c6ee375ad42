import { assert, describe, it, vi } from "@effect/vitest"
import { Schema } from "effect"
import * as fc from "fast-check"
import { longestVector } from "../../../src/backend/answerBounds.ts"
import { decodeEmbeddings, type EmbedKind } from "../../../src/backend/ollama/decodeEmbeddings.ts"
import { envelopeBytes, sliceVectors } from "../../../src/backend/ollama/embeddingSlices.ts"
import { numbersOf, vectorOf } from "../../support/vectors.ts"
import type { InferenceRequest } from "../../../src/domain/Inference.ts"
import { ByteList } from "../../../src/infra/ByteList.ts"

const float = fc.float({ noNaN: true, noDefaultInfinity: true })
const vector = fc.array(float, { minLength: 1, maxLength: 20 })

/** As it comes over the wire, in pieces. */
const decode = (kind: EmbedKind, body: InferenceRequest["body"], text: string) => {
  const bytes = new ByteList()
  for (let at = 0, whole = Buffer.from(text); at < whole.length; at += 7)
    bytes.push(whole.subarray(at, at + 7))
  return decodeEmbeddings(kind, body, bytes)
}
const space = fc.constantFrom("", " ", "\n", "\t  ")
const json = fc.oneof(fc.json(), fc.constantFrom('"]"', '"[["', '{"embeddings":[["x"]]}', '"\\\""', "[[1]]"))
const digits = fc.constantFrom("1.0", "-0", "1E+2", "0.10", "12345678901234567890", "-1.5e-07")

const decodeAnswer = Schema.decodeUnknownSync(
  Schema.fromJsonString(Schema.Struct({ embeddings: Schema.Array(Schema.Array(Schema.Finite)) }))
)

describe("the vectors of an answer", () => {
  it("when an answer has vectors, then they are read as they were written, one for each text", () => {
    fc.assert(
      fc.property(fc.array(vector, { maxLength: 10 }), (vectors) => {
        const text = JSON.stringify({ embeddings: vectors, prompt_eval_count: 3, model: "x", secret: 1 })
        const input = vectors.map(() => "a")
        const { list = [], ...decoded } = decode("embed", { input }, text) ?? { vectors: [] }
        assert.deepStrictEqual(decoded, {
          // JSON has no -0.
          vectors: vectors.map((each) => vectorOf(each.map((value) => value + 0))),
          promptEvalCount: 3
        })
        assert.strictEqual(Buffer.concat(list).toString(), JSON.stringify(vectors))
        assert.isUndefined(decode("embed", { input: [...input, "b"] }, text))
      })
    )
  })

  it("when the backend answers anything else, then reading does not throw", () => {
    fc.assert(
      fc.property(fc.oneof(fc.json(), fc.string()), fc.constantFrom("embed", "embeddings"), (text, kind) => {
        decode(kind, { input: ["a"], prompt: "a" }, text)
      })
    )
  })

  it("when a text is empty, then there is no vector for it, and in a list there is one", () => {
    assert.deepStrictEqual(decode("embed", { input: "" }, `{"embeddings":[]}`)?.vectors, [])
    assert.isUndefined(decode("embed", { input: "" }, `{"embeddings":[[1]]}`))
    assert.deepStrictEqual(decode("embed", { input: [""] }, `{"embeddings":[[1]]}`)?.vectors, [vectorOf([1])])
    assert.deepStrictEqual(decode("embeddings", { prompt: "" }, `{"embedding":[]}`), {
      vectors: [vectorOf([])]
    })
    assert.isUndefined(decode("embeddings", { prompt: "" }, `{"embedding":[1]}`))
    assert.isUndefined(decode("embeddings", { prompt: "a" }, `{"embedding":[]}`))
  })

  it("when a number is not one, or not a float32, then there are no vectors", () => {
    for (const value of ["null", '"1"', "1e39", "-1e999", "[1]", "true"]) {
      assert.isUndefined(decode("embed", { input: "a" }, `{"embeddings":[[0,${value}]]}`), value)
      assert.isUndefined(decode("embeddings", { prompt: "a" }, `{"embedding":[0,${value}]}`), value)
    }
  })

  it("when digits are written in any way, then they are kept as they are", () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(digits, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 4 }),
        fc.array(fc.tuple(fc.constantFrom("model", "embedding", "x", "a]["), json), { maxLength: 4 }),
        space,
        fc.nat(4),
        (vectors, others, gap, place) => {
          const texts = vectors.map((numbers) => `[${gap}${numbers.join(`${gap},`)}${gap}]`)
          const members = others.map(([key, value]) => `"${key}"${gap}:${gap}${value}`)
          members.splice(
            place,
            0,
            `${gap}"embeddings"${gap}:${gap}[${gap}${texts.join(`${gap},${gap}`)}${gap}]`
          )
          const decoded = decode(
            "embed",
            { input: vectors.map(() => "a") },
            `${gap}{${members.join(`${gap},${gap}`)}}${gap}`
          )
          assert.deepStrictEqual(
            decoded?.vectors.map(({ json }) => json.toString()),
            texts
          )
          assert.deepStrictEqual(
            decoded?.vectors.map(numbersOf),
            vectors.map((numbers) => numbers.map(Number))
          )
        }
      )
    )
  })

  it("when the key of the vectors is escaped or appears twice, then there are none", () => {
    for (const text of [
      '{"embed\\u0064ings":[[1.0]]}',
      '{"embeddings":[["x"]],"embeddings":[[1.0]]}',
      '{"embeddings":[[2.0]],"embeddings":[[1.0]]}',
      '{"embeddings":[[2.0]],"embed\\u0064ings":[[1.0]]}'
    ]) {
      assert.isUndefined(decode("embed", { input: "a" }, text), text)
    }
  })

  it("when bytes of an answer are changed, put in or taken out, then its vectors are those of JSON.parse, or there are none", () => {
    const bytes = fc.constantFrom(...Buffer.from('[]{},:"\\ 0129.-eE\n\u0000'), 0x80, 0xc2, 0xff)
    const change = fc.record({ place: fc.nat(), put: fc.array(bytes, { maxLength: 2 }), removed: fc.nat(2) })
    const members = fc.constantFrom(
      '"model":"m"',
      '"x":[[1]]',
      '"a":"]}\\"[,"',
      '"e":{"embeddings":[[1]]}',
      '"":1'
    )
    fc.assert(
      fc.property(
        fc.array(fc.array(digits, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 3 }),
        fc.array(members, { maxLength: 2 }),
        fc.array(change, { minLength: 1, maxLength: 3 }),
        (vectors, others, changes) => {
          const list = vectors.map((numbers) => `[${numbers.join(",")}]`).join(",")
          const answer = changes.reduce(
            (text, { place, put, removed }) => {
              const at = place % text.length
              return Buffer.concat([text.subarray(0, at), Buffer.from(put), text.subarray(at + removed)])
            },
            Buffer.from(
              `{${[...others.slice(0, 1), `"embeddings":[${list}]`, ...others.slice(1)].join(",")}}`
            )
          )
          const read = new ByteList()
          for (let at = 0; at < answer.length; at += 5) read.push(answer.subarray(at, at + 5))
          const decoded = decodeEmbeddings("embed", { input: vectors.map(() => "a") }, read)
          if (decoded === undefined) return
          const { embeddings } = decodeAnswer(answer.toString("utf8"))
          assert.deepStrictEqual(decoded.vectors.map(numbersOf), embeddings)
          assert.deepStrictEqual(JSON.parse(Buffer.concat(decoded.list ?? []).toString()), embeddings)
        }
      ),
      { numRuns: 20_000 }
    )
  })

  it("when the bytes around the vectors are more than a name and counts need, then there are none", () => {
    const answer = (bytes: number) => `{"model":"${"m".repeat(bytes)}","embeddings":[[1]]}`
    assert.isDefined(decode("embed", { input: "a" }, answer(60_000)))
    assert.isUndefined(decode("embed", { input: "a" }, answer(66_000)))
  })

  it("when there are more vectors than texts, then no more are read", () => {
    const many = (count: number) => `{"embeddings":[${"[1],".repeat(count - 1)}[1]]}`
    const listOf = (text: string) => {
      const bytes = new ByteList()
      bytes.push(Buffer.from(text))
      return bytes
    }
    assert.strictEqual(sliceVectors("embeddings", listOf(many(3)), 3)?.vectors.length, 3)
    const bytes = listOf(many(1_000_000))
    const slice = vi.spyOn(bytes, "slice")
    assert.isUndefined(sliceVectors("embeddings", bytes, 3))
    assert.isAtMost(slice.mock.calls.length, 4)
  })

  it("when a vector is longer than an answer to one text may be, then it is not read", () => {
    const answer = (size: number) => `{"embeddings":[[1],[${"1,".repeat((size - 3) / 2)}1]]}`
    const input = ["a", "b"]
    assert.strictEqual(decode("embed", { input }, answer(longestVector - 1))?.vectors.length, 2)
    assert.isUndefined(decode("embed", { input }, answer(longestVector + 1)))
  })

  it("when many bytes are not of vectors, then few of them are read, wherever they are", () => {
    const size = 4 * 2 ** 20
    for (const [before, unit, after] of [
      ["", " ", `{"embeddings":[[1]]}`],
      [`{"embeddings":`, " ", "[[1]]}"],
      [`{"embeddings":[[1]`, " ", "]}"],
      [`{"x":[`, "[],", `[]],"embeddings":[[1]]}`],
      [`{"x":"`, "a", `","embeddings":[[1]]}`],
      [`{"`, "a", `":1,"embeddings":[[1]]}`],
      [`{`, `"":1,`, `"embeddings":[[1]]}`],
      [`{"embeddings":[[1]]`, " ", "}"],
      [`{"embeddings":[[1]],"x":[`, "0,", "0]}"]
    ] as const) {
      const bytes = new ByteList()
      bytes.push(Buffer.from(before + unit.repeat(size / unit.length) + after))
      const at = vi.spyOn(bytes, "at")
      assert.isUndefined(decodeEmbeddings("embed", { input: "a" }, bytes), before + unit)
      assert.isAtMost(at.mock.calls.length, 2 * envelopeBytes, before + unit)
    }
  })
})
