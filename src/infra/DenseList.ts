/**
 * Who is here just now, for what comes and goes with every request. Not a `Map` or a `Set`: when one of those makes room,
 * its old table stays linked to the new one (V8, `OrderedHashTable`), and once the old one is old in the eyes of the
 * collector, everything that was in the new one is kept with it until the next full collection. In a list that lives as
 * long as the process, or a connection, that can be many a request that is over (`bench/RESULTS.md` has what was gained).
 */

/** A place in a roster; whoever has it may leave. */
export interface Handle {
  /** where in the list; -1 once left */
  at: number
}

export class DenseList<A extends object> {
  readonly #items: Array<A> = []
  readonly #seats: Array<Handle> = []

  get size(): number {
    return this.#items.length
  }

  /** As they are now, in no particular order. */
  get all(): ReadonlyArray<A> {
    return [...this.#items]
  }

  /** One of them; undefined when there is none. */
  get random(): A | undefined {
    return this.#items[Math.floor(Math.random() * this.#items.length)]
  }

  add(item: A): Handle {
    const seat = { at: this.#items.length }
    this.#items.push(item)
    this.#seats.push(seat)
    return seat
  }

  /** The last one takes the place. Leaving twice is leaving once. */
  remove(seat: Handle): void {
    const { at } = seat
    if (at === -1) return
    seat.at = -1
    const [item, last] = [this.#items.pop(), this.#seats.pop()]
    if (item === undefined || last === undefined || last === seat) return
    this.#items[at] = item
    this.#seats[at] = last
    last.at = at
  }
}
