/**
 * Collects bytes in one buffer whose memory doubles. A list of pieces would keep an object of a hundred bytes for
 * each piece, also for a piece of one byte.
 */
import { freeBuffer } from "./freeBuffer.ts"

const leastBytes = 4096

export class GrowingBuffer {
  readonly #most: number
  #memory = Buffer.alloc(0)
  #size = 0

  /** `most`: bytes that are added at most; no memory is taken for more */
  constructor(most = Infinity) {
    this.#most = most
  }

  /** bytes that were added */
  get size(): number {
    return this.#size
  }

  /** The memory that the buffer has after `more` bytes are added. */
  memoryWith(more: number): number {
    const needed = this.#size + more
    if (needed <= this.#memory.length) return this.#memory.length
    return Math.max(needed, Math.min(this.#most, Math.max(leastBytes, 2 * needed)))
  }

  /**
   * Adds a piece, and frees it when it has memory of its own: without that V8 collects its whole heap after 40 answers of 330 KB. Nobody
   * else may use the piece; undici has parsed a chunk before it is pulled.
   */
  push(piece: Buffer): void {
    const memory = this.memoryWith(piece.length)
    if (memory > this.#memory.length) this.#move(memory)
    piece.copy(this.#memory, this.#size)
    this.#size += piece.length
    freeBuffer(piece)
  }

  /** The bytes, in memory of their own length. */
  exact(): Buffer {
    this.#move(this.#size)
    return this.#memory
  }

  /** Moves the bytes to a memory of `length` bytes. */
  #move(length: number): void {
    const memory = Buffer.allocUnsafeSlow(length)
    this.#memory.copy(memory, 0, 0, this.#size)
    freeBuffer(this.#memory)
    this.#memory = memory
  }
}
