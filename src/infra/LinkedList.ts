/**
 * A list that lives as long as the process, of entries that come and go with each request, the oldest first. Adding and removing
 * take constant time.
 *
 * It is not a `Set` or a `Map`. When one of those is rehashed, V8 links the old table to the new one (`OrderedHashTable`), and the
 * old table still has its entries. Once an old table is in old space, it keeps the next table and all its entries until the next
 * full collection, although nobody needs them, and so does the next one. Nearly all requests outlived their end that way
 * (`bench/RESULTS.md` has what this list saves). A link that is removed refers to no other link.
 */
export class Link<A> {
  readonly value: A
  list: LinkedList<A> | undefined
  older: Link<A> | undefined
  newer: Link<A> | undefined

  constructor(value: A) {
    this.value = value
  }
}

export class LinkedList<A> {
  #oldest: Link<A> | undefined
  #newest: Link<A> | undefined
  #size = 0

  get size(): number {
    return this.#size
  }

  get oldest(): A | undefined {
    return this.#oldest?.value
  }

  has(link: Link<A>): boolean {
    return link.list === this
  }

  /** Adds a link that is in no list. */
  add(link: Link<A>): void {
    link.list = this
    link.older = this.#newest
    if (this.#newest === undefined) this.#oldest = link
    else this.#newest.newer = link
    this.#newest = link
    this.#size += 1
  }

  /** Removes a link. Returns whether it was in the list. */
  remove(link: Link<A>): boolean {
    if (link.list !== this) return false
    const { newer, older } = link
    if (older === undefined) this.#oldest = newer
    else older.newer = newer
    if (newer === undefined) this.#newest = older
    else newer.older = older
    link.list = undefined
    link.older = undefined
    link.newer = undefined
    this.#size -= 1
    return true
  }

  /** The values at this moment, the oldest first. */
  get all(): ReadonlyArray<A> {
    const values: Array<A> = []
    for (let link = this.#oldest; link !== undefined; link = link.newer) values.push(link.value)
    return values
  }
}
