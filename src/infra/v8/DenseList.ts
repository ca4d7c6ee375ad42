/**
 * A set with O(1) add and remove, for entries that come and go with each request. It is not a `Map` or a `Set`: when one of
 * those grows, V8 links its old table to the new one (`OrderedHashTable`). Once the old table is in old space, it keeps all
 * entries of the new one until the next full collection. In a set that lives as long as the process or a connection, that
 * can keep many finished requests in memory (`bench/RESULTS.md` has the gain).
 */

/** The place of an entry. It is needed to remove the entry. */
export interface Handle {
  /** index in the list; -1 when removed */
  at: number
}

export class DenseList<A extends object> {
  readonly #items: Array<A> = []
  readonly #handles: Array<Handle> = []

  get size(): number {
    return this.#items.length
  }

  /** A copy of the entries, in no particular order. */
  get all(): ReadonlyArray<A> {
    return [...this.#items]
  }

  /** A random entry; undefined when there is none. */
  get random(): A | undefined {
    return this.#items[Math.floor(Math.random() * this.#items.length)]
  }

  add(item: A): Handle {
    const handle = { at: this.#items.length }
    this.#items.push(item)
    this.#handles.push(handle)
    return handle
  }

  /** Removes an entry; the last entry moves to its place. A second call does nothing. */
  remove(handle: Handle): void {
    const { at } = handle
    if (at === -1) return
    handle.at = -1
    const [item, last] = [this.#items.pop(), this.#handles.pop()]
    if (item === undefined || last === undefined || last === handle) return
    this.#items[at] = item
    this.#handles[at] = last
    last.at = at
  }
}
