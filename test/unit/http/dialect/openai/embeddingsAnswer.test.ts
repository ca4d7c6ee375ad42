import { assert, describe, it, vi } from "@effect/vitest"
import type { Vector } from "../../../../../src/domain/Embeddings.ts"
import { encodeEmbeddings } from "../../../../../src/http/dialect/openai/embeddingsAnswer.ts"
import { callOf } from "../../../../support/permits.ts"

const request = callOf({ kind: "embed", base64: true }).request

const vectorOf = (numbers: ReadonlyArray<string>): Vector => ({
  json: Buffer.from(`[${numbers.join(",")}]`),
  length: numbers.length
})

/** The vectors that a client decodes from the answer. */
const decoded = (vectors: ReadonlyArray<Vector>): ReadonlyArray<ReadonlyArray<number>> => {
  const text = encodeEmbeddings(request, { vectors })
    .map((part) => part.toString())
    .join("")
  const answer: { readonly data: ReadonlyArray<{ readonly embedding: string }> } = JSON.parse(text)
  return answer.data.map(({ embedding }) => {
    const bytes = Buffer.from(embedding, "base64")
    return Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readFloatLE(4 * i))
  })
}

describe("vectors in base64", () => {
  it("when vectors have any number of numbers, then a client gets each of them, in order", () => {
    for (const count of [1, 2, 3, 1024, 12_287, 12_288, 12_289, 40_000]) {
      const numbers = Array.from({ length: count }, (_, i) => String(i % 7 === 0 ? -i : i / 8))
      const got = decoded([vectorOf(numbers), vectorOf(["1"])])
      assert.deepStrictEqual(got, [numbers.map(Number), [1]], `${count} numbers`)
    }
  })

  it("when numbers are long or have spaces around them, then they are read too", () => {
    const long = `0.${"5".repeat(130_000)}`
    const spaced = ["1", ` ${long}`, `\n2 `, `${long}${" ".repeat(65_000)}`, " 3"]
    assert.deepStrictEqual(decoded([vectorOf(spaced)]), [[1, Math.fround(5 / 9), 2, Math.fround(5 / 9), 3]])
  })

  it("when a vector is very long, then only a part of it is parsed at once", () => {
    const parse = vi.spyOn(JSON, "parse")
    const parts = encodeEmbeddings(request, {
      vectors: [vectorOf(Array.from({ length: 500_000 }, () => "1"))]
    })
    const calls = parse.mock.calls.length
    parse.mockRestore()
    assert.strictEqual(calls, 0)
    assert.isAtMost(Math.max(...parts.map(({ length }) => length)), 65_536)
  })
})
