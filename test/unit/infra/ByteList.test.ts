import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { ByteList, largeBytes, slabBytes } from "../../../src/infra/ByteList.ts"

/** Sizes around those at which the list changes what it does. */
const size = fc.oneof(
  fc.nat(20),
  fc.constantFrom(255, 256, 257, largeBytes - 1, largeBytes, slabBytes - 1, slabBytes, slabBytes + 1)
)

/** A piece, and the unused bytes around it in its memory. */
const piece = fc.tuple(size, fc.constantFrom(0, 0, 100, largeBytes, 4 * slabBytes))

let next = 0
const pieceOf = ([length, spare]: readonly [number, number]): Buffer => {
  const memory = Buffer.allocUnsafeSlow(length + spare)
  const bytes = memory.subarray(spare >> 1, (spare >> 1) + length)
  for (let i = 0; i < length; i += 1) bytes[i] = next = (next * 31 + i + 7) % 251
  return bytes
}

const listOf = (pieces: ReadonlyArray<Buffer>): ByteList => {
  const list = new ByteList()
  for (const each of pieces) list.push(each)
  return list
}

/** The memory of the parts. Node makes small buffers in a common pool. */
const memoryOf = (list: ByteList): number =>
  list.parts.reduce(
    (sum, { buffer, length }) => sum + (buffer.byteLength <= Buffer.poolSize ? length : buffer.byteLength),
    0
  )

it("when pieces of any size are added, then the list has their bytes in order", () => {
  fc.assert(
    fc.property(
      fc.array(piece, { maxLength: 8 }),
      fc.array(fc.tuple(fc.nat(), fc.nat(), fc.nat(255)), { maxLength: 10 }),
      (sizes, places) => {
        const pieces = sizes.map(pieceOf)
        const [list, whole] = [listOf(pieces), Buffer.concat(pieces)]
        assert.strictEqual(list.size, whole.length)
        assert.isTrue(Buffer.concat(list.parts).equals(whole))
        for (const [one, other, byte] of places) {
          const start = one % (whole.length + 1)
          const end = start + (other % (whole.length + 1 - start))
          assert.isTrue(list.slice(start, end).equals(whole.subarray(start, end)))
          assert.strictEqual(list.at(start), whole[start])
          assert.strictEqual(list.indexOf(byte, start), whole.indexOf(byte, start))
        }
        list.clear()
        assert.deepStrictEqual([list.size, list.at(0), list.indexOf(0, 0)], [0, undefined, -1])
      }
    ),
    { numRuns: 300 }
  )
})

it("when bytes are added, then the list takes no more memory than it said before", () => {
  fc.assert(
    fc.property(fc.array(fc.array(piece, { maxLength: 3 }), { maxLength: 8 }), (reads) => {
      const list = new ByteList()
      for (const read of reads) {
        const pieces = read.map(pieceOf)
        const limit = list.capacityWith(pieces.reduce((sum, { length }) => sum + length, 0))
        for (const each of pieces) list.push(each)
        assert.isAtMost(memoryOf(list), limit)
        assert.isAtMost(limit, 2 * list.size + 2 * slabBytes)
      }
    }),
    { numRuns: 300 }
  )
})

it("when a piece is large and most of its memory, then it is not copied", () => {
  const [kept, copied] = [pieceOf([largeBytes, largeBytes]), pieceOf([largeBytes, largeBytes + 1])]
  const [first, second] = listOf([kept, copied]).parts
  assert.strictEqual(first?.buffer, kept.buffer)
  assert.notStrictEqual(second?.buffer, copied.buffer)
})

const isFree = ({ buffer }: Buffer): boolean => buffer instanceof ArrayBuffer && buffer.detached

it("when a list is released, then the memory of all its parts is free, and the list is empty", () => {
  const kept = pieceOf([largeBytes, largeBytes])
  const list = listOf([kept, pieceOf([largeBytes - 1, 0]), pieceOf([slabBytes, 4 * slabBytes]), kept])
  const parts = list.parts
  list.release()
  assert.isAtLeast(parts.length, 4)
  assert.isTrue(isFree(kept))
  for (const part of parts) assert.isTrue(isFree(part))
  assert.deepStrictEqual([list.size, list.parts, list.at(0)], [0, [], undefined])
  list.push(Buffer.from("again"))
  assert.strictEqual(list.text, "again")
})

it("when a list is small, then its memory is of a pool, and is not freed with the list", () => {
  const other = Buffer.from("another buffer of the pool")
  const list = listOf([Buffer.from("small")])
  const [part = other] = list.parts
  list.release()
  assert.isBelow(part.length, part.buffer.byteLength)
  assert.isFalse(isFree(part))
  assert.strictEqual(other.toString(), "another buffer of the pool")
})

it("when a slab grows, then the memory that it had before is free", () => {
  const list = listOf([pieceOf([slabBytes / 4, 4 * slabBytes])])
  const [before] = list.parts
  list.push(pieceOf([1, 0]))
  const [after] = list.parts
  assert.deepStrictEqual(
    [before, after].map((part) => part !== undefined && isFree(part)),
    [true, false]
  )
  assert.strictEqual(after?.length, slabBytes / 4 + 1)
})
