/** Chance that can be repeated: xorshift32, all of a run from its one seed. */
export class Random {
  #state: number

  constructor(seed: number) {
    this.#state = seed >>> 0 || 1
  }

  #next(): number {
    let x = this.#state
    x ^= x << 13
    x ^= x >>> 17
    x ^= x << 5
    this.#state = x >>> 0
    return this.#state
  }

  /** 0 to `below` - 1 */
  int(below: number): number {
    return this.#next() % below
  }

  chance(one: number): boolean {
    return this.int(one) === 0
  }

  pick<A>(from: readonly [A, ...Array<A>]): A {
    return from[this.int(from.length)] ?? from[0]
  }

  word(from: ReadonlyArray<string>): string {
    return from[this.int(from.length)] ?? ""
  }
}

/** The words of a list that is written as a text. */
export const wordsOf = (text: string): ReadonlyArray<string> => text.split(/\s+/)
