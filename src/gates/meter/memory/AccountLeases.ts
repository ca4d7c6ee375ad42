/** What the running requests of an account hold, with the sums that every call needs. */

export interface Lease {
  /** epoch ms; 0 once it has ended: what remains is the hold */
  readonly until: number
  readonly slot: boolean
  readonly tokens: number
}

export class AccountLeases {
  readonly #leases = new Map<string, Lease>()
  /** no lease ends before the one, none after the other */
  #soonest = Number.POSITIVE_INFINITY
  #latest = Number.NEGATIVE_INFINITY
  #slots = 0
  #tokens = 0

  /** slots taken */
  get slots(): number {
    return this.#slots
  }

  /** tokens held and not yet used */
  get tokens(): number {
    return this.#tokens
  }

  get size(): number {
    return this.#leases.size
  }

  /** ids of requests whose lease has ended and that still hold tokens */
  get lapsed(): ReadonlyArray<string> {
    return [...this.#leases].flatMap(([id, { until }]) => (until === 0 ? [id] : []))
  }

  has(id: string): boolean {
    return this.#leases.has(id)
  }

  set(id: string, lease: Lease): void {
    this.delete(id)
    this.#leases.set(id, lease)
    if (lease.slot) this.#slots += 1
    this.#tokens += lease.tokens
    if (lease.until === 0) return
    this.#soonest = Math.min(this.#soonest, lease.until)
    this.#latest = Math.max(this.#latest, lease.until)
  }

  delete(id: string): void {
    const lease = this.#leases.get(id)
    if (lease === undefined) return
    this.#leases.delete(id)
    if (lease.slot) this.#slots -= 1
    this.#tokens -= lease.tokens
  }

  /** Ends expired leases. No lease is longer than one given now (`leaseMs`), because a clock may have gone back. */
  moveTo(now: number, leaseMs: number): void {
    const longest = now + leaseMs
    if (now < this.#soonest && this.#latest <= longest) return
    this.#soonest = Number.POSITIVE_INFINITY
    this.#latest = Number.NEGATIVE_INFINITY
    // A copy: a lease that is set anew goes to the end, and would be met again.
    const all = Array.from(this.#leases)
    for (const [id, lease] of all) {
      if (lease.until === 0) continue
      if (lease.until > now) this.set(id, { ...lease, until: Math.min(lease.until, longest) })
      else if (lease.tokens > 0) this.set(id, { until: 0, slot: false, tokens: lease.tokens })
      else this.delete(id)
    }
  }
}
