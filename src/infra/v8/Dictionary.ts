/**
 * A map by text, for entries that come and go with each request. It is not a `Map`, for the reason that `DenseList.ts` gives: old
 * tables of a `Map` keep finished requests until the next full collection. It is not an object either: V8 keeps one copy of each
 * name of a property in old space. To make and find that copy took 1 % of the gateway's time (`bench/RESULTS.md`).
 *
 * Keys are told apart by their last characters, which are random in an id. So the keys must not be texts of a client, who
 * could choose them alike.
 */

interface Entry<A> {
  readonly key: string
  value: A
  /** the next one with the same place in the table */
  next: Entry<A> | undefined
}

const hashedCharacters = 8
const fewest = 64

const emptyTable = <A>(size: number): Array<Entry<A> | undefined> =>
  Array.from({ length: size }, () => undefined)

export class Dictionary<A extends object> {
  /** its length is a power of two */
  #table = emptyTable<A>(fewest)
  #size = 0

  get size(): number {
    return this.#size
  }

  get keys(): ReadonlyArray<string> {
    const keys: Array<string> = []
    for (const first of this.#table) {
      for (let entry = first; entry !== undefined; entry = entry.next) keys.push(entry.key)
    }
    return keys
  }

  get(key: string): A | undefined {
    return this.#find(key)?.value
  }

  set(key: string, value: A): void {
    const found = this.#find(key)
    if (found !== undefined) {
      found.value = value
      return
    }
    if (this.#size >= this.#table.length) this.#grow()
    this.#size += 1
    this.#add({ key, value, next: undefined })
  }

  delete(key: string): void {
    const found = this.#find(key)
    if (found === undefined) return
    this.#size -= 1
    const place = this.#placeOf(key)
    let before = this.#table[place]
    if (before === found) this.#table[place] = found.next
    else {
      while (before !== undefined && before.next !== found) before = before.next
      if (before !== undefined) before.next = found.next
    }
    // In old space it would keep the next one until the next full collection.
    found.next = undefined
  }

  #placeOf(key: string): number {
    let hash = key.length
    for (let i = Math.max(0, key.length - hashedCharacters); i < key.length; i += 1) {
      hash = (Math.imul(hash, 31) + key.charCodeAt(i)) | 0
    }
    return (hash ^ (hash >>> 15)) & (this.#table.length - 1)
  }

  #find(key: string): Entry<A> | undefined {
    let entry = this.#table[this.#placeOf(key)]
    while (entry !== undefined && entry.key !== key) entry = entry.next
    return entry
  }

  #add(entry: Entry<A>): void {
    const place = this.#placeOf(entry.key)
    entry.next = this.#table[place]
    this.#table[place] = entry
  }

  #grow(): void {
    const before = this.#table
    this.#table = emptyTable(2 * before.length)
    for (const first of before) {
      for (let entry = first; entry !== undefined;) {
        const { next } = entry
        this.#add(entry)
        entry = next
      }
    }
  }
}
