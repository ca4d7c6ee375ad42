/**
 * Collects bytes. Small pieces are copied into slabs: a list of pieces would keep an object of a hundred bytes for each
 * piece, also for a piece of one byte. A slab doubles until it has `slabBytes`. After a full slab the next one has that size
 * from the start, so that bytes are not copied again.
 *
 * A large piece is kept as it is if it is at least half of the memory that it keeps alive. Nobody may change a piece after
 * it was added, or use its memory after `release`.
 */
import { freeBuffer, freeMemory } from "./freeBuffer.ts"

export const slabBytes = 2 ** 18
const minBytes = 256
/** Smaller pieces are always copied. */
export const largeBytes = 2 ** 14

const isKept = (piece: Buffer): boolean =>
  piece.length >= largeBytes && piece.buffer.byteLength <= 2 * piece.length

/** Bytes that lie together: a slab, or a piece that was kept. */
interface Part {
  /** index of its first byte in the list */
  readonly start: number
  memory: Buffer
  used: number
  readonly isSlab: boolean
}

export class ByteList {
  #parts: Array<Part> = []
  #size = 0
  /** memory of all parts before the last one */
  #before = 0
  /** index of the part that was read last: reading goes mostly forward */
  #near = 0

  get size(): number {
    return this.#size
  }

  get text(): string {
    return this.slice(0, this.#size).toString("utf8")
  }

  /** The bytes of each part, without a copy. */
  get parts(): ReadonlyArray<Buffer> {
    return this.partsBetween(0, this.#size)
  }

  /** The maximal memory of the list after `more` bytes are added in any number of pieces. */
  capacityWith(more: number): number {
    const last = this.#parts.at(-1)
    const [memory, used] = last === undefined ? [0, 0] : [memoryOf(last), last.isSlab ? last.used : 0]
    // A slab at most doubles, a kept piece is at least half of its memory, and each may be followed by a new small slab.
    const smallSlabs = minBytes * (1 + Math.ceil(more / largeBytes))
    const nextSlab = used + more > slabBytes ? slabBytes : 0
    return this.#before + Math.max(memory, 2 * used) + 2 * more + smallSlabs + nextSlab
  }

  /** Adds the bytes of `piece`. Buffers that were read before must not be used any more. */
  push(piece: Buffer): void {
    if (isKept(piece))
      return this.#add({ start: this.#size, memory: piece, used: piece.length, isSlab: false })
    for (let at = 0; at < piece.length;) {
      const slab = this.#slabFor(piece.length - at)
      const copied = piece.copy(slab.memory, slab.used, at)
      slab.used += copied
      this.#size += copied
      at += copied
    }
  }

  /** The byte at `index`; undefined beyond the end. */
  at(index: number): number | undefined {
    if (index >= this.#size) return undefined
    const part = this.#partAt(index)
    return part?.memory[index - part.start]
  }

  /** The first place from `from` on that has `byte`, or -1. */
  indexOf(byte: number, from: number): number {
    if (from >= this.#size) return -1
    let part = this.#partAt(from)
    while (part !== undefined) {
      const found = part.memory.indexOf(byte, Math.max(0, from - part.start))
      if (found !== -1 && found < part.used) return part.start + found
      part = this.#parts[(this.#near += 1)]
    }
    this.#near = 0
    return -1
  }

  /** The bytes from `start` to before `end`, without a copy. */
  partsBetween(start: number, end: number): ReadonlyArray<Buffer> {
    const pieces: Array<Buffer> = []
    for (let at = start; at < end;) {
      const part = this.#partAt(at)
      if (part === undefined) break
      const to = Math.min(part.start + part.used, end)
      pieces.push(part.memory.subarray(at - part.start, to - part.start))
      at = to
    }
    return pieces
  }

  /** The same as one buffer. It copies only bytes of more than one part. */
  slice(start: number, end: number): Buffer {
    const pieces = this.partsBetween(start, end)
    const [only] = pieces
    return pieces.length === 1 && only !== undefined ? only : Buffer.concat(pieces)
  }

  /**
   * Empties the list and frees its memory (`freeBuffer.ts`), also that of the pieces that were kept. Bytes that were read
   * without a copy are gone.
   */
  release(): void {
    for (const part of this.#parts) freePart(part)
    this.clear()
  }

  clear(): void {
    this.#parts = []
    this.#size = 0
    this.#before = 0
    this.#near = 0
  }

  /** The part with the byte at `index`, which is below `size`. */
  #partAt(index: number): Part | undefined {
    let part = this.#parts[this.#near]
    while (part !== undefined && index < part.start) part = this.#parts[(this.#near -= 1)]
    while (part !== undefined && index >= part.start + part.used) part = this.#parts[(this.#near += 1)]
    return part
  }

  #add(part: Part): void {
    const last = this.#parts.at(-1)
    if (last !== undefined) this.#before += memoryOf(last)
    this.#parts.push(part)
    this.#size += part.used
  }

  /** The slab that is written to. It has room for at least one byte, and for `bytes` if a slab can have them. */
  #slabFor(bytes: number): Part {
    const last = this.#parts.at(-1)
    if (last === undefined || !last.isSlab || last.used === slabBytes) {
      const isNext = last?.isSlab === true
      const memory = Buffer.allocUnsafe(isNext ? slabBytes : Math.min(slabBytes, Math.max(bytes, minBytes)))
      const slab = { start: this.#size, memory, used: 0, isSlab: true }
      this.#add(slab)
      return slab
    }
    const needed = Math.min(slabBytes, last.used + bytes)
    if (last.memory.length < needed) {
      const grown = Buffer.allocUnsafe(Math.min(slabBytes, Math.max(needed, 2 * last.used)))
      last.memory.copy(grown, 0, 0, last.used)
      freePart(last)
      last.memory = grown
    }
    return last
  }
}

/** A small slab is part of a pool of Node's, which is not freed. A kept piece never is: it is half of its memory or more. */
const freePart = ({ isSlab, memory }: Part): void => (isSlab ? freeBuffer(memory) : freeMemory(memory.buffer))

const memoryOf = ({ isSlab, memory }: Part): number => (isSlab ? memory.length : memory.buffer.byteLength)
