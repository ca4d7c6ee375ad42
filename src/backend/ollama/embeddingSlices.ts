/**
 * Finds the vectors in the bytes of an answer without parsing the answer, which may have tens of megabytes. The client
 * gets the vectors as the backend wrote them: formatting a number costs three times as much as parsing it.
 *
 * The rest of the answer is returned with `null` in place of the vectors, for `JSON.parse`.
 */
import type { ByteList } from "../../infra/ByteList.ts"
import { longestVector } from "../answerBounds.ts"

/**
 * Maximal bytes outside the vectors: the model's name, some counts, and the commas between vectors. They are read one by one,
 * which takes 10 to 90 ns for each.
 */
export const envelopeBytes = 65_536

const [space, tab, lineFeed, carriageReturn] = [0x20, 0x09, 0x0a, 0x0d]
const [quote, backslash, comma, colon] = [0x22, 0x5c, 0x2c, 0x3a]
const [openBracket, closeBracket, openBrace, closeBrace] = [0x5b, 0x5d, 0x7b, 0x7d]

export interface Slices {
  /** from each `[` to the next `]`; the content is not checked yet */
  readonly vectors: ReadonlyArray<Buffer>
  /** the whole value: the list of vectors, or the one vector */
  readonly value: ReadonlyArray<Buffer>
  /** the rest of the answer, with `null` in place of the vectors */
  readonly envelope: string
}

/** It goes no further than `envelopeBytes` outside the vectors. There it finds nothing more. */
class Cursor {
  readonly #bytes: ByteList
  #end: number
  at = 0

  constructor(bytes: ByteList) {
    this.#bytes = bytes
    this.#end = Math.min(envelopeBytes, bytes.size)
  }

  /** Skips white space and returns the byte after it. */
  next(): number | undefined {
    for (; this.at < this.#end; this.at += 1) {
      const byte = this.#bytes.at(this.at)
      if (byte !== space && byte !== lineFeed && byte !== carriageReturn && byte !== tab) return byte
    }
    return undefined
  }

  /** Skips white space and then `byte`. Returns whether it was there. */
  skip(byte: number): boolean {
    if (this.next() !== byte) return false
    this.at += 1
    return true
  }

  /** Skips the string that begins here. */
  skipString(): void {
    for (this.at += 1; this.at < this.#end; this.at += 1) {
      const byte = this.#bytes.at(this.at)
      if (byte === backslash) this.at += 1
      else if (byte === quote) break
    }
    this.at += 1
  }

  /** Skips a value of any kind, up to the comma after it or the end of the object around it. */
  skipValue(): void {
    let depth = 0
    while (this.at < this.#end) {
      const byte = this.#bytes.at(this.at)
      if (byte === quote) {
        this.skipString()
        continue
      }
      if (byte === openBracket || byte === openBrace) depth += 1
      else if (byte === closeBracket || byte === closeBrace) depth -= 1
      if (depth < 0 || (depth === 0 && byte === comma)) return
      this.at += 1
    }
  }

  /** Reads the vector that begins here. */
  readVector(): Buffer | undefined {
    const end = this.next() === openBracket ? this.#bytes.indexOf(closeBracket, this.at) : -1
    // Its bytes are copied when they lie in several parts of the list.
    if (end === -1 || end - this.at >= longestVector) return undefined
    const found = this.#bytes.slice(this.at, end + 1)
    this.#end = Math.min(this.#end + found.length, this.#bytes.size)
    this.at = end + 1
    return found
  }

  /** Reads the list of at most `most` vectors that begins here. */
  readVectors(most: number): ReadonlyArray<Buffer> | undefined {
    const found: Array<Buffer> = []
    if (!this.skip(openBracket)) return undefined
    if (this.skip(closeBracket)) return found
    do {
      if (found.length === most) return undefined
      const vector = this.readVector()
      if (vector === undefined) return undefined
      found.push(vector)
    } while (this.skip(comma))
    return this.skip(closeBracket) ? found : undefined
  }
}

/**
 * Finds the vectors under `embeddings`, or the one under `embedding`. Returns undefined when the key is missing or there
 * twice, when there are more than `most` vectors, one longer than `longestVector` or more than `envelopeBytes` beside them,
 * and for JSON that no server writes: a key with escapes, an empty object.
 */
export const sliceVectors = (
  name: "embedding" | "embeddings",
  bytes: ByteList,
  most: number
): Slices | undefined => {
  const cursor = new Cursor(bytes)
  let found:
    | { readonly vectors: ReadonlyArray<Buffer>; readonly from: number; readonly to: number }
    | undefined
  if (!cursor.skip(openBrace)) return undefined
  do {
    if (cursor.next() !== quote) return undefined
    const start = cursor.at
    cursor.skipString()
    const key = bytes.slice(start + 1, Math.min(cursor.at - 1, start + 65)).toString("utf8")
    if (key.includes("\\") || !cursor.skip(colon)) return undefined
    cursor.next()
    const from = cursor.at
    if (key !== name) cursor.skipValue()
    else {
      if (found !== undefined) return undefined
      const one = name === "embedding" ? cursor.readVector() : undefined
      const vectors = name === "embeddings" ? cursor.readVectors(most) : one === undefined ? undefined : [one]
      if (vectors === undefined) return undefined
      found = { vectors, from, to: cursor.at }
    }
  } while (cursor.skip(comma))
  if (found === undefined || bytes.size - (found.to - found.from) > envelopeBytes) return undefined
  const [before, after] = [bytes.slice(0, found.from), bytes.slice(found.to, bytes.size)]
  const value = bytes.partsBetween(found.from, found.to)
  return {
    vectors: found.vectors,
    value,
    envelope: `${before.toString("utf8")}null${after.toString("utf8")}`
  }
}
