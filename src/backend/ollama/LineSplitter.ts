/**
 * Splits bytes into lines at `\n`, so that a multi-byte character that the network cut stays whole. It keeps only the
 * incomplete line.
 */

import { ByteList } from "../../infra/ByteList.ts"

/**
 * Longest line kept, unless told otherwise: what the backend's own client accepts. A final frame with the `context` of a
 * long conversation is well over one MiB.
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

export class LineSplitter {
  readonly #limit: number
  readonly #pending = new ByteList()

  constructor(limit: number = maxLineBytes) {
    this.#limit = limit
  }

  /** bytes of the line under way */
  get pending(): number {
    return this.#pending.size
  }

  /** The lines that `chunk` completes, blank ones left out; a `\r` before the `\n` stays, JSON does not mind it. */
  push(chunk: Buffer): ReadonlyArray<string> | LineTooLong {
    const first = chunk.indexOf(newline)
    if (this.#pending.size + (first === -1 ? chunk.length : first) > this.#limit)
      return new LineTooLong(this.#limit)
    if (first === -1) {
      this.#pending.push(chunk)
      return []
    }
    const last = chunk.lastIndexOf(newline)
    const whole = this.#join(chunk.subarray(0, last))
    if (last + 1 < chunk.length) this.#pending.push(chunk.subarray(last + 1))
    return whole.split("\n").filter(isNotBlank)
  }

  /** The rest after the last byte: a last line without `\n`. */
  end(): ReadonlyArray<string> {
    return [this.#join(Buffer.alloc(0))].filter(isNotBlank)
  }

  #join(tail: Buffer): string {
    if (this.#pending.size === 0) return tail.toString("utf8")
    if (tail.length > 0) this.#pending.push(tail)
    const { text } = this.#pending
    this.#pending.clear()
    return text
  }
}

const isNotBlank = (line: string): boolean => line.length > 2 || line.trim() !== ""
