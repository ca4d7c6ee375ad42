/**
 * The requests or tokens of the last 60 seconds. What comes within the same half second is a group. All of a group leaves the
 * window 60 seconds after the last of it came, so that no 60-second span has more than the window says.
 */
import { groupMs, windowMs } from "../bounds.ts"

/** An amount and the number of the group it is in. */
export interface Noted {
  readonly group: number
  readonly amount: number
}

interface Group {
  /** when the last of it came, in ms */
  at: number
  amount: number
}

const groupAt = (at: number): number => Math.floor(at / groupMs)

export class Window {
  #now: number
  #sum = 0
  /** oldest first */
  #groups: Array<Group> = []

  constructor(now: number) {
    this.#now = now
  }

  get sum(): number {
    return this.#sum
  }

  /** Drops groups that have left. What came later than now, because the clock went back, counts as of now. */
  moveTo(now: number): void {
    const first = this.#groups.findIndex(({ at }) => at > now - windowMs)
    const left = this.#groups.splice(0, first === -1 ? this.#groups.length : first)
    for (const { amount } of left) this.#sum -= amount
    if (now < this.#now) {
      const later = this.#groups.findIndex(({ at }) => at > now)
      const moved = later === -1 ? [] : this.#groups.splice(later)
      const amount = moved.reduce((sum, group) => sum + group.amount, 0)
      if (amount > 0) this.#groups.push({ at: now, amount })
    }
    this.#now = now
  }

  add(amount: number): void {
    const last = this.#groups.at(-1)
    if (last !== undefined && groupAt(last.at) === groupAt(this.#now)) {
      last.at = Math.max(last.at, this.#now)
      last.amount += amount
    } else this.#groups.push({ at: this.#now, amount })
    this.#sum += amount
  }

  /** Takes back an entry of `at`, if it is still in the window. */
  takeBack(at: number, amount: number): void {
    this.#take(groupAt(at), amount)
  }

  /**
   * Changes by `difference` what was `noted` of one request. Too much is taken back where it was noted first; what
   * has left the window cannot be.
   */
  change(noted: ReadonlyArray<Noted>, difference: number): ReadonlyArray<Noted> {
    const oldest = groupAt(this.#now - windowMs)
    const here = noted.filter(({ group }) => group >= oldest)
    if (difference > 0) {
      this.add(difference)
      return [...here, { group: groupAt(this.#now), amount: difference }]
    }
    let excess = -difference
    return here.map(({ amount, group }) => {
      const taken = this.#take(group, Math.min(excess, amount))
      excess -= taken
      return { group, amount: amount - taken }
    })
  }

  /** Milliseconds until at most `room` of the present amount is left. */
  waitFor(room: number): number {
    let sum = this.#sum
    if (sum <= room) return 1
    for (const { amount, at } of this.#groups) {
      sum -= amount
      if (sum <= room) return at + windowMs - this.#now
    }
    return windowMs
  }

  /** Milliseconds until nothing of the present amount is left. */
  get emptyIn(): number {
    const last = this.#groups.at(-1)
    return last === undefined ? 0 : last.at + windowMs - this.#now
  }

  /** Takes up to `amount` from a group; a group later than now is the last one. Returns how much it took. */
  #take(group: number, amount: number): number {
    const wanted = Math.min(group, groupAt(this.#now))
    const i = this.#groups.findLastIndex(({ at }) => groupAt(at) <= wanted)
    const found = this.#groups[i]
    if (found === undefined || groupAt(found.at) !== wanted) return 0
    const taken = Math.min(amount, found.amount)
    found.amount -= taken
    this.#sum -= taken
    if (found.amount === 0) this.#groups.splice(i, 1)
    return taken
  }
}
