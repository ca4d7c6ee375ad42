/**
 * The vectors of an answer as the backend wrote them. Writing a number anew costs three times what reading it does, and
 * an answer has tens of thousands: what was read and found good goes on in the backend's own digits.
 *
 * Only for text that `JSON.parse` has taken for an object. Nothing but digits, signs, points, exponents, commas and white
 * space is ever found to be a vector.
 */
import { afterSpace, endOfString } from "../../domain/jsonText.ts"

const vectorText = /^\[[\d\s.,eE+-]*\]$/

class Walk {
  readonly #text: string
  at = 0

  constructor(text: string) {
    this.#text = text
  }

  /** The next character that is no white space, which is passed over. */
  next(): string {
    this.at = afterSpace(this.#text, this.at)
    return this.#text.charAt(this.at)
  }

  /** Passes `character`; answers whether it was there. */
  passes(character: string): boolean {
    if (this.next() !== character) return false
    this.at += 1
    return true
  }

  /** The string that begins here, in its quotes. */
  string(): string {
    const start = this.at
    const end = endOfString(this.#text, start)
    this.at = end === -1 ? this.#text.length : end
    return this.#text.slice(start, this.at)
  }

  /** Passes a value of any kind. */
  value(): void {
    let depth = 0
    for (; this.at < this.#text.length; this.at += 1) {
      const character = this.#text.charAt(this.at)
      if (character === '"') {
        this.string()
        this.at -= 1
      } else if (character === "[" || character === "{") depth += 1
      else if (character === "]" || character === "}") depth -= 1
      if (depth < 0 || (depth === 0 && character === ",")) return
    }
  }

  /** The vector that begins here. */
  vector(): string | undefined {
    const end = this.#text.indexOf("]", this.at)
    if (end === -1) return undefined
    const text = this.#text.slice(this.at, end + 1)
    this.at = end + 1
    return vectorText.test(text) ? text : undefined
  }

  /** The list of vectors that begins here. */
  vectors(): ReadonlyArray<string> | undefined {
    const texts: Array<string> = []
    if (!this.passes("[")) return undefined
    if (this.passes("]")) return texts
    do {
      if (this.next() !== "[") return undefined
      const text = this.vector()
      if (text === undefined) return undefined
      texts.push(text)
    } while (this.passes(","))
    return this.passes("]") ? texts : undefined
  }
}

/**
 * The texts of the vectors under `embeddings`, or of the one under `embedding`; undefined when they are not plain to see
 * (a key that is spelled in escapes, say): then they have to be written anew.
 */
export const sliceVectors = (
  name: "embedding" | "embeddings",
  text: string
): ReadonlyArray<string> | undefined => {
  const walk = new Walk(text)
  let found: ReadonlyArray<string> | undefined
  if (!walk.passes("{")) return undefined
  while (walk.next() === '"') {
    const key = walk.string()
    if (key.includes("\\") || !walk.passes(":")) return undefined
    walk.next()
    if (key !== `"${name}"`) walk.value()
    else {
      const one = name === "embedding" ? walk.vector() : undefined
      found = name === "embeddings" ? walk.vectors() : one === undefined ? undefined : [one]
      if (found === undefined) return undefined
    }
    if (!walk.passes(",")) break
  }
  // Of two that are called the same, the last counts, as it does for `JSON.parse`.
  return found
}
