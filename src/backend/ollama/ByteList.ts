/**
 * Bytes that come in pieces, in one buffer that doubles when it is full: a piece of one byte costs one byte, where a list
 * of pieces keeps an object of a hundred bytes and more for each.
 */
export class ByteList {
  #buffer = Buffer.alloc(0)
  #size = 0

  get size(): number {
    return this.#size
  }

  get text(): string {
    return this.#buffer.toString("utf8", 0, this.#size)
  }

  push(piece: Buffer): void {
    const needed = this.#size + piece.length
    if (needed > this.#buffer.length) {
      const grown = Buffer.allocUnsafe(Math.max(needed, this.#buffer.length * 2, 256))
      this.#buffer.copy(grown, 0, 0, this.#size)
      this.#buffer = grown
    }
    piece.copy(this.#buffer, this.#size)
    this.#size = needed
  }

  clear(): void {
    this.#buffer = Buffer.alloc(0)
    this.#size = 0
  }
}
