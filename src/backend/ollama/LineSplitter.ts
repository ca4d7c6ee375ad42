/**
 * Splits bytes into lines at `\n`. It splits bytes and not text, because a chunk may end inside a character. It keeps
 * only the incomplete line.
 */
import { GrowingBuffer } from "../../infra/GrowingBuffer.ts"

/**
 * The default limit of a line, which is what Ollama's own client accepts. A final frame with the `context` of a long
 * conversation has more than one MiB.
 */
export const maxLineBytes = 8 * 1024 * 1024

const newline = 0x0a

/** A line is longer than `limit` bytes. */
export class LineTooLong extends Error {
  readonly limit: number
  constructor(limit: number) {
    super(`line longer than ${limit} bytes`)
    this.name = "LineTooLong"
    this.limit = limit
  }
}

export class LineSplitter {
  readonly #limit: number
  readonly #pending = new GrowingBuffer()

  constructor(limit: number = maxLineBytes) {
    this.#limit = limit
  }

  /** bytes of the incomplete line */
  get pending(): number {
    return this.#pending.size
  }

  /** Returns the lines that `chunk` completes, without blank ones. A `\r` before the `\n` stays, which JSON allows. */
  push(chunk: Buffer): ReadonlyArray<string> | LineTooLong {
    const first = chunk.indexOf(newline)
    if (this.#pending.size + (first === -1 ? chunk.length : first) > this.#limit)
      return new LineTooLong(this.#limit)
    if (first === -1) {
      this.#pending.push(chunk)
      return []
    }
    const last = chunk.lastIndexOf(newline)
    const complete = this.#join(chunk.subarray(0, last))
    if (last + 1 < chunk.length) this.#pending.push(chunk.subarray(last + 1))
    return complete.split("\n").filter(isNotBlank)
  }

  /** Returns the last line, if it has no `\n`. */
  end(): ReadonlyArray<string> {
    return [this.#join(Buffer.alloc(0))].filter(isNotBlank)
  }

  #join(tail: Buffer): string {
    if (this.#pending.size === 0) return tail.toString("utf8")
    if (tail.length > 0) this.#pending.push(tail)
    const text = this.#pending.bytes.toString("utf8")
    this.#pending.clear()
    return text
  }
}

const isNotBlank = (line: string): boolean => line.length > 2 || line.trim() !== ""
