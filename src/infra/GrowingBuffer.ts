/**
 * Collects bytes in one buffer whose memory doubles. A list of pieces would keep an object of a hundred bytes for each
 * piece, also for a piece of one byte.
 */
const leastBytes = 4096

export class GrowingBuffer {
  #memory = Buffer.alloc(0)
  #size = 0

  /** bytes that were added */
  get size(): number {
    return this.#size
  }

  /** All bytes. They are valid until the next `push`. */
  get bytes(): Buffer {
    return this.#memory.subarray(0, this.#size)
  }

  /** The memory that the buffer has after `more` bytes are added. */
  memoryWith(more: number): number {
    const needed = this.#size + more
    return needed <= this.#memory.length ? this.#memory.length : Math.max(leastBytes, 2 * needed)
  }

  push(piece: Buffer): void {
    const memory = this.memoryWith(piece.length)
    if (memory > this.#memory.length) {
      const grown = Buffer.allocUnsafeSlow(memory)
      this.bytes.copy(grown)
      this.#memory = grown
    }
    piece.copy(this.#memory, this.#size)
    this.#size += piece.length
  }
}
