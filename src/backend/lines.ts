/**
 * Bytes into lines: splits on `\n` over raw bytes, so that a multi-byte character cut in two by the network stays
 * whole. Holds the line that is not complete yet, and nothing else.
 */

/**
 * Longest line kept: what the backend's own client accepts (ollama-wire §1.12). A final frame with the `context` of
 * a long conversation is well over one MiB.
 */
export const maxLineBytes = 8 * 1024 * 1024

const newline = 0x0a

/** The line under way is longer than `limit` bytes. */
export class LineTooLong extends Error {
  readonly limit: number
  constructor(limit: number) {
    super(`line longer than ${limit} bytes`)
    this.name = "LineTooLong"
    this.limit = limit
  }
}

export class Lines {
  readonly #limit: number
  #buffer = Buffer.alloc(0)
  #pending = 0

  constructor(limit: number = maxLineBytes) {
    this.#limit = limit
  }

  /** The lines that `chunk` completes, blank ones left out; a `\r` before the `\n` stays, JSON does not mind it. */
  push(chunk: Buffer): ReadonlyArray<string> | LineTooLong {
    const first = chunk.indexOf(newline)
    if (this.#pending + (first === -1 ? chunk.length : first) > this.#limit)
      return new LineTooLong(this.#limit)
    if (first === -1) {
      this.#keep(chunk)
      return []
    }
    const last = chunk.lastIndexOf(newline)
    const whole = this.#join(chunk.subarray(0, last))
    if (last + 1 < chunk.length) this.#keep(chunk.subarray(last + 1))
    return whole.split("\n").filter(isNotBlank)
  }

  /** What is left when the bytes have ended: a last line without its `\n`. */
  end(): ReadonlyArray<string> {
    return [this.#join(Buffer.alloc(0))].filter(isNotBlank)
  }

  /** Doubles when it is full: a line that drips in byte by byte costs no more than one that comes whole. */
  #keep(piece: Buffer): void {
    const needed = this.#pending + piece.length
    if (needed > this.#buffer.length) {
      const grown = Buffer.allocUnsafe(Math.max(needed, this.#buffer.length * 2, 256))
      this.#buffer.copy(grown, 0, 0, this.#pending)
      this.#buffer = grown
    }
    piece.copy(this.#buffer, this.#pending)
    this.#pending = needed
  }

  #join(tail: Buffer): string {
    if (this.#pending === 0) return tail.toString("utf8")
    const whole = Buffer.concat([this.#buffer.subarray(0, this.#pending), tail])
    this.#buffer = Buffer.alloc(0)
    this.#pending = 0
    return whole.toString("utf8")
  }
}

const isNotBlank = (line: string): boolean => line.length > 2 || line.trim() !== ""
