import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { GrowingBuffer } from "../../../src/infra/GrowingBuffer.ts"

it("when pieces of any size are added, then they are all there, in memory of at most twice their size", () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 9000 })), (pieces) => {
      const buffer = new GrowingBuffer()
      for (const piece of pieces) {
        const expected = buffer.memoryWith(piece.length)
        buffer.push(Buffer.from(piece))
        assert.strictEqual(buffer.memoryWith(0), expected)
        assert.isAtMost(expected, Math.max(4096, 2 * buffer.size))
      }
      assert.isTrue(buffer.exact().equals(Buffer.concat(pieces)))
      assert.strictEqual(buffer.memoryWith(0), buffer.size)
    })
  )
})
