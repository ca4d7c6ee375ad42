/**
 * Collects bytes in one buffer whose memory doubles. A list of pieces would keep an object of a hundred bytes for
 * each piece, also for a piece of one byte.
 */
import { freeBuffer } from "./freeBuffer.ts"

const leastBytes = 4096

export class GrowingBuffer {
  #memory = Buffer.alloc(0)
  #size = 0

  /** bytes that were added */
  get size(): number {
    return this.#size
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
      this.#memory.copy(grown, 0, 0, this.#size)
      freeBuffer(this.#memory)
      this.#memory = grown
    }
    piece.copy(this.#memory, this.#size)
    this.#size += piece.length
  }

  /** Takes what `read` reads of the bytes. They are freed afterwards. */
  take<A>(read: (bytes: Buffer) => A): A {
    const value = read(this.#memory.subarray(0, this.#size))
    freeBuffer(this.#memory)
    this.#memory = Buffer.alloc(0)
    this.#size = 0
    return value
  }
}
