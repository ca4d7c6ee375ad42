import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { encodeEmbeddings } from "../../../../../src/http/dialect/openai/embeddings.ts"
import { callOf } from "../../../../support/permits.ts"

it("when a client asks for base64, then it decodes each number as float32, in order", () => {
  const { request } = callOf({ kind: "embed", base64: true })
  // JSON has no -0.
  const float = fc.float({ noNaN: true, noDefaultInfinity: true }).map((value) => value + 0)
  fc.assert(
    fc.property(fc.array(fc.array(float, { minLength: 1, maxLength: 40 }), { maxLength: 5 }), (vectors) => {
      const answer: { readonly data: ReadonlyArray<{ readonly embedding: string }> } = JSON.parse(
        encodeEmbeddings(request, { vectors: vectors.map((each) => JSON.stringify(each)) }).join("")
      )
      const decoded = answer.data.map(({ embedding }) => {
        const bytes = Buffer.from(embedding, "base64")
        return Array.from({ length: bytes.length / 4 }, (_, i) => bytes.readFloatLE(4 * i))
      })
      assert.deepStrictEqual(decoded, vectors)
    })
  )
})
