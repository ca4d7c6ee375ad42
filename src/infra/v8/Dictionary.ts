/**
 * A map by text, for entries that come and go with each request. It is not a `Map`, for the reason that `DenseList.ts` gives: old
 * tables of a `Map` keep finished requests until the next full collection. The table of an object is not linked to the one
 * before it.
 */
export class Dictionary<A extends object> {
  readonly #entries: { [key: string]: A | undefined } = Object.create(null)
  #size = 0

  get size(): number {
    return this.#size
  }

  get keys(): ReadonlyArray<string> {
    return Object.keys(this.#entries)
  }

  get(key: string): A | undefined {
    return this.#entries[key]
  }

  set(key: string, entry: A): void {
    if (this.#entries[key] === undefined) this.#size += 1
    this.#entries[key] = entry
  }

  delete(key: string): void {
    if (this.#entries[key] === undefined) return
    this.#size -= 1
    delete this.#entries[key]
  }
}
