/**
 * The requests or tokens of the last 60 seconds. What comes in the same half second is a group. All of a group leaves the window
 * 60 seconds after the last of it came, so no 60-second span has more than the window says.
 */
import { groupMs, windowMs } from "../bounds.ts"

/** An amount in the window, and the number of the half second in which it came. */
export interface Noted {
  readonly half: number
  readonly amount: number
}

interface Group {
  readonly half: number
  /** when the last of it came, epoch ms */
  readonly at: number
  readonly amount: number
}

const halfOf = (at: number): number => Math.floor(at / groupMs)

export class Window {
  /** oldest first */
  #groups: ReadonlyArray<Group> = []
  #now = 0

  get sum(): number {
    return this.#groups.reduce((sum, { amount }) => sum + amount, 0)
  }

  /** Milliseconds until nothing of it is left. */
  get emptyIn(): number {
    const last = this.#groups.at(-1)
    return last === undefined ? 0 : last.at + windowMs - this.#now
  }

  /** Milliseconds until at most `room` of it is left. */
  waitFor(room: number): number {
    let sum = this.sum
    if (sum <= room) return 1
    for (const { amount, at } of this.#groups) {
      sum -= amount
      if (sum <= room) return at + windowMs - this.#now
    }
    return windowMs
  }

  /** Drops what has left. What came later than now counts as of now: the clock went back. */
  moveTo(now: number): void {
    this.#now = now
    const all = this.#groups.filter(({ at }) => at > now - windowMs)
    this.#groups = all.filter(({ at }) => at <= now)
    for (const { amount, at } of all) if (at > now) this.add(amount)
  }

  add(amount: number): Noted {
    const half = halfOf(this.#now)
    const last = this.#groups.at(-1)
    const before = last?.half === half ? last.amount : 0
    const others = last?.half === half ? this.#groups.slice(0, -1) : this.#groups
    this.#groups = [...others, { half, at: this.#now, amount: before + amount }]
    return { half, amount }
  }

  /** Takes back what was noted, or as much of it as is still in the window. Returns how much that is. */
  take({ amount, half }: Noted): number {
    // What came later than now counts as of now.
    const found = this.#groups.find((group) => group.half === Math.min(half, halfOf(this.#now)))
    if (found === undefined) return 0
    const taken = Math.min(amount, found.amount)
    this.#groups = this.#groups
      .map((group) => (group === found ? { ...found, amount: found.amount - taken } : group))
      .filter((group) => group.amount > 0)
    return taken
  }
}
