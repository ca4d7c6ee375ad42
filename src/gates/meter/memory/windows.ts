/**
 * The requests or tokens of the last 60 seconds, in 11 buckets of 6 s: ten full ones and the current one. An entry
 * leaves 60 to 66 s after it came, so that no 60-second span has more than the window says.
 */
import { bucketCount, bucketMs } from "../bounds.ts"

/** An amount and the number of the bucket it is in. */
export interface Noted {
  readonly bucket: number
  readonly amount: number
}

/** The longest anything stays, in ms. */
export const windowMs = bucketCount * bucketMs

const slotOf = (bucket: number): number => bucket % bucketCount

export class Window {
  #bucket: number
  #amounts: Array<number> = Array.from({ length: bucketCount }, () => 0)

  constructor(now: number) {
    this.#bucket = Math.floor(now / bucketMs)
  }

  get sum(): number {
    return this.#amounts.reduce((sum, amount) => sum + amount, 0)
  }

  /** Drops expired buckets. When the clock went back, all entries count as recent. */
  moveTo(now: number): void {
    const bucket = Math.floor(now / bucketMs)
    if (bucket < this.#bucket) {
      const sum = this.sum
      this.#amounts.fill(0)
      this.#amounts[slotOf(bucket)] = sum
    }
    for (let i = Math.max(this.#bucket + 1, bucket - bucketCount + 1); i <= bucket; i++)
      this.#amounts[slotOf(i)] = 0
    this.#bucket = bucket
  }

  add(amount: number): void {
    this.#set(this.#bucket, amount)
  }

  /** Takes back an entry of `at`, if it is still in the window. */
  takeBack(at: number, amount: number): void {
    const bucket = Math.floor(at / bucketMs)
    if (this.#holds(bucket)) this.#set(bucket, -amount)
  }

  /**
   * Changes by `difference` what was `noted` of one request. Too much is taken back where it was noted first; what
   * has left the window cannot be.
   */
  change(noted: ReadonlyArray<Noted>, difference: number): ReadonlyArray<Noted> {
    const here = noted.filter(({ bucket }) => this.#holds(bucket))
    if (difference > 0) {
      this.add(difference)
      return [...here, { bucket: this.#bucket, amount: difference }]
    }
    let excess = -difference
    return here.map(({ bucket, amount }) => {
      const removed = Math.min(excess, amount, this.#amounts[slotOf(Math.min(bucket, this.#bucket))] ?? 0)
      excess -= removed
      this.#set(bucket, -removed)
      return { bucket, amount: amount - removed }
    })
  }

  /** Milliseconds until at most `room` of the present amount is left. */
  waitFor(room: number, now: number): number {
    let sum = this.sum
    if (sum <= room) return 1
    for (let bucket = this.#bucket - bucketCount + 1; bucket <= this.#bucket; bucket++) {
      sum -= this.#amounts[slotOf(bucket)] ?? 0
      if (sum <= room) return (bucket + bucketCount) * bucketMs - now
    }
    return windowMs
  }

  /** Milliseconds until nothing of the present amount is left. */
  emptyIn(now: number): number {
    for (let bucket = this.#bucket; bucket > this.#bucket - bucketCount; bucket--)
      if ((this.#amounts[slotOf(bucket)] ?? 0) > 0) return (bucket + bucketCount) * bucketMs - now
    return 0
  }

  #holds(bucket: number): boolean {
    return bucket > this.#bucket - bucketCount
  }

  #set(bucket: number, difference: number): void {
    const slot = slotOf(Math.min(bucket, this.#bucket))
    this.#amounts[slot] = Math.max(0, (this.#amounts[slot] ?? 0) + difference)
  }
}
