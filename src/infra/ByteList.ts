/**
 * Collects bytes by copying them into slabs. A list of pieces would keep an object of a hundred bytes for each piece, also
 * for a piece of one byte. The first slab doubles until it has `slabBytes`. Further slabs have that size from the start, so
 * that bytes are not copied again.
 */
const slabBits = 18
export const slabBytes = 2 ** slabBits
const minBytes = 256

const none: Buffer = Buffer.alloc(0)

export class ByteList {
  #slabs: Array<Buffer> = []
  #size = 0

  get size(): number {
    return this.#size
  }

  get text(): string {
    return this.slice(0, this.#size).toString("utf8")
  }

  /** The bytes of each slab, without a copy. */
  get parts(): ReadonlyArray<Buffer> {
    return this.#slabs.map((slab, i) => slab.subarray(0, this.#size - i * slabBytes))
  }

  /** The maximal memory of the list after `more` bytes are added. */
  capacityWith(more: number): number {
    const size = this.#size + more
    return size <= slabBytes ? Math.max(minBytes, 2 * size) : size + slabBytes
  }

  push(piece: Buffer): void {
    for (let at = 0; at < piece.length;) {
      const used = this.#size % slabBytes
      const slab = this.#slabFor(Math.min(slabBytes, used + piece.length - at))
      const copied = piece.copy(slab, used, at)
      this.#size += copied
      at += copied
    }
  }

  /** The byte at `index`; undefined beyond the end. */
  at(index: number): number | undefined {
    return index < this.#size ? this.#slabs[index >> slabBits]?.[index % slabBytes] : undefined
  }

  /** The first place from `from` on that has `byte`, or -1. */
  indexOf(byte: number, from: number): number {
    for (let i = from >> slabBits; i < this.#slabs.length; i += 1) {
      const start = i * slabBytes
      const found = this.#part(i).indexOf(byte, Math.max(0, from - start))
      if (found !== -1) return start + found
    }
    return -1
  }

  /** Copies only bytes of more than one slab. */
  slice(start: number, end: number): Buffer {
    const pieces: Array<Buffer> = []
    for (let at = start; at < end;) {
      const [from, slab] = [at % slabBytes, at - (at % slabBytes)]
      const to = Math.min(slabBytes, end - slab)
      pieces.push(this.#part(at >> slabBits).subarray(from, to))
      at = slab + to
    }
    const [only] = pieces
    return pieces.length === 1 && only !== undefined ? only : Buffer.concat(pieces)
  }

  clear(): void {
    this.#slabs = []
    this.#size = 0
  }

  #part(index: number): Buffer {
    return this.#slabs[index]?.subarray(0, this.#size - index * slabBytes) ?? none
  }

  /** The slab that is written to, with room for `bytes` in all. */
  #slabFor(bytes: number): Buffer {
    const index = this.#size >> slabBits
    const slab = this.#slabs[index]
    if (slab !== undefined && slab.length >= bytes) return slab
    const isFirst = index === 0
    const size = isFirst ? Math.min(slabBytes, Math.max(bytes, 2 * this.#size, minBytes)) : slabBytes
    const grown = Buffer.allocUnsafe(size)
    slab?.copy(grown)
    this.#slabs[index] = grown
    return grown
  }
}
