/**
 * Finds the vectors in the bytes of an answer, without making text or objects of the whole: an answer may have tens of
 * megabytes, and its vectors go on as the bytes that came. Writing a number anew costs three times what reading it does, too.
 *
 * What stands around the vectors is given back with `null` in their place, for `JSON.parse` to judge.
 */
import type { ByteList } from "../../infra/ByteList.ts"

/** Most bytes around the vectors: the model's name and some counts. */
const envelopeBytes = 65_536

const [space, tab, lineFeed, carriageReturn] = [0x20, 0x09, 0x0a, 0x0d]
const [quote, backslash, comma, colon] = [0x22, 0x5c, 0x2c, 0x3a]
const [openBracket, closeBracket, openBrace, closeBrace] = [0x5b, 0x5d, 0x7b, 0x7d]

export interface Slices {
  /** arrays of whatever stands between `[` and the next `]`; their content is still to be judged */
  readonly vectors: ReadonlyArray<Buffer>
  /** the rest of the answer */
  readonly envelope: string
}

class Cursor {
  readonly #bytes: ByteList
  at = 0

  constructor(bytes: ByteList) {
    this.#bytes = bytes
  }

  /** The next byte that is no white space, which is passed over. */
  next(): number | undefined {
    for (;;) {
      const byte = this.#bytes.at(this.at)
      if (byte !== space && byte !== lineFeed && byte !== carriageReturn && byte !== tab) return byte
      this.at += 1
    }
  }

  /** Passes `byte`; answers whether it was there. */
  passes(byte: number): boolean {
    if (this.next() !== byte) return false
    this.at += 1
    return true
  }

  /** Passes the string that begins here. */
  string(): void {
    for (this.at += 1; this.at < this.#bytes.size; this.at += 1) {
      const byte = this.#bytes.at(this.at)
      if (byte === backslash) this.at += 1
      else if (byte === quote) break
    }
    this.at += 1
  }

  /** Passes a value of any kind, up to the comma or the end of the object around it. */
  value(): void {
    let depth = 0
    while (this.at < this.#bytes.size) {
      const byte = this.#bytes.at(this.at)
      if (byte === quote) {
        this.string()
        continue
      }
      if (byte === openBracket || byte === openBrace) depth += 1
      else if (byte === closeBracket || byte === closeBrace) depth -= 1
      if (depth < 0 || (depth === 0 && byte === comma)) return
      this.at += 1
    }
  }

  /** The vector that begins here. */
  vector(): Buffer | undefined {
    const end = this.next() === openBracket ? this.#bytes.indexOf(closeBracket, this.at) : -1
    if (end === -1) return undefined
    const found = this.#bytes.slice(this.at, end + 1)
    this.at = end + 1
    return found
  }

  /** The list of vectors that begins here. */
  vectors(): ReadonlyArray<Buffer> | undefined {
    const found: Array<Buffer> = []
    if (!this.passes(openBracket)) return undefined
    if (this.passes(closeBracket)) return found
    do {
      const vector = this.vector()
      if (vector === undefined) return undefined
      found.push(vector)
    } while (this.passes(comma))
    return this.passes(closeBracket) ? found : undefined
  }
}

/**
 * The vectors under `embeddings`, or the one under `embedding`. Undefined when there are none, or twice, or when the answer is
 * spelled as no server spells it: a key with escapes, an empty object.
 */
export const sliceVectors = (name: "embedding" | "embeddings", bytes: ByteList): Slices | undefined => {
  const cursor = new Cursor(bytes)
  let found:
    | { readonly vectors: ReadonlyArray<Buffer>; readonly from: number; readonly to: number }
    | undefined
  if (!cursor.passes(openBrace)) return undefined
  do {
    if (cursor.next() !== quote) return undefined
    const start = cursor.at
    cursor.string()
    const key = bytes.slice(start + 1, Math.min(cursor.at - 1, start + 65)).toString("utf8")
    if (key.includes("\\") || !cursor.passes(colon)) return undefined
    cursor.next()
    const from = cursor.at
    if (key !== name) cursor.value()
    else {
      if (found !== undefined) return undefined
      const one = name === "embedding" ? cursor.vector() : undefined
      const vectors = name === "embeddings" ? cursor.vectors() : one === undefined ? undefined : [one]
      if (vectors === undefined) return undefined
      found = { vectors, from, to: cursor.at }
    }
  } while (cursor.passes(comma))
  if (found === undefined || bytes.size - (found.to - found.from) > envelopeBytes) return undefined
  const [before, after] = [bytes.slice(0, found.from), bytes.slice(found.to, bytes.size)]
  return { vectors: found.vectors, envelope: `${before.toString("utf8")}null${after.toString("utf8")}` }
}
