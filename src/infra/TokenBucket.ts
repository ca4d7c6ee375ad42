/**
 * Limits a rate. A bucket holds up to `burst` units and gets `perSecond` units each second. One that may be overdrawn lets a
 * use pass that costs more than it holds; later uses wait until the debt is paid.
 */
import { makeLruCache } from "./LruCache.ts"

export interface Rate {
  readonly perSecond: number
  readonly burst: number
  /** how far the bucket may be overdrawn, in seconds of its rate; default 0 */
  readonly overdraftS?: number
}

export class TokenBucket {
  readonly rate: Rate
  readonly #nowMs: () => number
  #units: number
  #countedAt: number

  constructor(rate: Rate, nowMs: () => number) {
    this.rate = rate
    this.#nowMs = nowMs
    this.#units = rate.burst
    this.#countedAt = nowMs()
  }

  /** The units in it; negative when it is overdrawn. */
  get units(): number {
    const now = this.#nowMs()
    const { burst, perSecond } = this.rate
    this.#units = Math.min(burst, this.#units + ((now - this.#countedAt) * perSecond) / 1000)
    this.#countedAt = now
    return this.#units
  }

  /** Takes `units`, as far as the overdraft allows. */
  take(units = 1): void {
    const { overdraftS = 0, perSecond } = this.rate
    this.#units = Math.max(-overdraftS * perSecond, this.units - units)
  }

  /** How long it takes until there are `units`, in milliseconds. */
  msUntil(units: number): number {
    return (Math.max(0, units - this.units) * 1000) / this.rate.perSecond
  }
}

/** A bucket for each name: those of the `capacity` names that were used last. A name that is forgotten starts with a full one. */
export const makeBuckets = (rate: Rate, capacity: number, nowMs: () => number) => {
  const buckets = makeLruCache<TokenBucket>(capacity)
  return (name: string): TokenBucket => {
    const known = buckets.get(name)
    if (known !== undefined) return known
    const bucket = new TokenBucket(rate, nowMs)
    buckets.set(name, bucket)
    return bucket
  }
}

/**
 * The buckets of a use: that of its name, and that of its group, which has `share` times as much. So many names of one group do not use
 * all that there is.
 */
export const makeFairBuckets = (rate: Rate, share: number, capacity: number, nowMs: () => number) => {
  const groupRate = { ...rate, perSecond: share * rate.perSecond, burst: share * rate.burst }
  const [ofName, ofGroup] = [makeBuckets(rate, capacity, nowMs), makeBuckets(groupRate, capacity, nowMs)]
  return (group: string, name: string) => [ofName(name), ofGroup(group)]
}
