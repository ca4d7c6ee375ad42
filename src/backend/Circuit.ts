/**
 * The circuit breaker as a state machine, without a clock: every method takes the time in milliseconds, which must never
 * go back, except that of what another process has seen. `breaker.ts` runs calls through it.
 *
 * Closed: `failures` consecutive failures open it. A streak of one key alone does not open it if another key was served
 * within the last `openMs`. The same holds for tenants. So one key or tenant cannot shut out the others.
 *
 * Open for `openMs`, then half-open: one call is let through as a probe, and its first frame closes the circuit. A probe
 * without a result after `openMs` no longer blocks the next one. The key of the last probe is passed over for `openMs`
 * if another key has asked within the last `4 * openMs`; the same holds for tenants. A key that is alone still recovers,
 * and no key is locked out for good.
 *
 * The memory does not grow with the number of keys: the last two keys and tenants that were served and that asked, and
 * the caller of the last probe.
 */
import type { Caller } from "../domain/Caller.ts"

/** `open` refuses calls. `half-open` lets the next call through, one at a time. */
export type BreakerState = "closed" | "open" | "half-open"

export interface CircuitOptions {
  /** consecutive failures that open it; at least 1 */
  readonly failures: number
  readonly openMs: number
}

/** The result of a call. A client that left is `ignored`. */
export type CallResult = "success" | "failure" | "ignored"

/** The caller of a call. */
export type Party = Pick<Caller, "keyId" | "tenantId">

export interface Admission {
  /** Results of an earlier generation are ignored: the circuit has opened or closed since. */
  readonly generation: number
  readonly party: Party
  readonly probe: boolean
}

/** The call must not be made now. */
export class Refusal {
  readonly waitMs: number
  constructor(waitMs: number) {
    this.waitMs = waitMs
  }
}

/** While a probe runs, its result may come at any moment. */
const probingWaitMs = 1000

export class Circuit {
  readonly #failures: number
  readonly #openMs: number
  readonly #served = new LastParties()
  readonly #asked = new LastParties()
  #generation = 0
  #closed = true
  #streak = 0
  /** The only key in the streak, and the only tenant; undefined when there are several, or no streak. */
  #streakKey: string | undefined
  #streakTenant: string | undefined
  /** When not closed: the time from which the next probe may start. */
  #freeAt = 0
  /** When not closed: the running probe. */
  #probe: Admission | undefined
  #lastProber: Party | undefined

  constructor({ failures, openMs }: CircuitOptions) {
    this.#failures = failures
    this.#openMs = openMs
  }

  state(now: number): BreakerState {
    if (this.#closed) return "closed"
    return this.#probe === undefined && now < this.#freeAt ? "open" : "half-open"
  }

  get isClosed(): boolean {
    return this.#closed
  }

  /** Grows each time that it opens or closes. */
  get generation(): number {
    return this.#generation
  }

  /** Whether the last call that counts was a failure. A success then changes the state. */
  get hasStreak(): boolean {
    return this.#streak > 0
  }

  /** Records that `party` was served at `at`, by a call of another process. */
  noteServed(party: Party, at: number): void {
    this.#served.note(party, at)
  }

  /** Records that `party` asked another process at `at`. */
  noteAsked(party: Party, at: number): void {
    this.#asked.note(party, at)
  }

  /**
   * Records a request of `party`. Returns the milliseconds until a call could be let through, 0 for now. Reserves
   * nothing.
   */
  waitMs(party: Party, now: number): number {
    this.#asked.note(party, now)
    if (this.#closed) return 0
    if (now < this.#freeAt) return this.#probe === undefined ? this.#freeAt - now : probingWaitMs
    return this.#isPassedOver(party, now) ? Math.max(0, this.#freeAt + this.#openMs - now) : 0
  }

  /** Lets a call of `party` through or refuses it. The result of every admission must be recorded with `record`. */
  admit(party: Party, now: number): Admission | Refusal {
    const waitMs = this.waitMs(party, now)
    if (waitMs > 0) return new Refusal(waitMs)
    const admission: Admission = { generation: this.#generation, party, probe: !this.#closed }
    if (admission.probe) {
      this.#probe = admission
      this.#lastProber = party
      this.#freeAt = now + this.#openMs
    }
    return admission
  }

  /**
   * Records the first frame. After a probe it closes the circuit. It does not end a streak, because streams that all
   * break after their first frame must open the circuit. Returns the admission for `record` at the end of the stream.
   */
  began(admission: Admission, now: number): Admission {
    this.#served.note(admission.party, now)
    if (!admission.probe || admission.generation !== this.#generation) return admission
    this.#close()
    return { generation: this.#generation, party: admission.party, probe: false }
  }

  /** Records how a call, or its stream, ended. */
  record(admission: Admission, outcome: CallResult, now: number): void {
    if (outcome === "success") this.#served.note(admission.party, now)
    if (admission.generation !== this.#generation) return
    if (this.#closed) this.#count(admission.party, outcome, now)
    else if (outcome === "success") this.#close()
    // A late result of an abandoned probe may close the circuit, but does not count as a failure.
    else if (admission === this.#probe) {
      if (outcome === "failure") this.#open(now)
      else {
        this.#probe = undefined
        this.#freeAt = now
      }
    }
  }

  #count({ keyId, tenantId }: Party, outcome: CallResult, now: number): void {
    if (outcome === "success") this.#endStreak()
    else if (outcome === "failure") {
      const first = this.#streak === 0
      this.#streakKey = first || this.#streakKey === keyId ? keyId : undefined
      this.#streakTenant = first || this.#streakTenant === tenantId ? tenantId : undefined
      this.#streak += 1
      if (this.#streak >= this.#failures && !this.#isCausedByOne(now)) this.#open(now)
    }
  }

  /** Whether the streak belongs to one key or tenant while others were served. */
  #isCausedByOne(now: number): boolean {
    const since = now - this.#openMs
    return (
      (this.#streakKey !== undefined && this.#served.keys.lastExcept(this.#streakKey) >= since) ||
      (this.#streakTenant !== undefined && this.#served.tenants.lastExcept(this.#streakTenant) >= since)
    )
  }

  /** Whether the probe is reserved for another key or tenant that asked recently. */
  #isPassedOver({ keyId, tenantId }: Party, now: number): boolean {
    const since = now - 4 * this.#openMs
    return (
      (this.#lastProber?.keyId === keyId && this.#asked.keys.lastExcept(keyId) >= since) ||
      (this.#lastProber?.tenantId === tenantId && this.#asked.tenants.lastExcept(tenantId) >= since)
    )
  }

  #endStreak(): void {
    this.#streak = 0
    this.#streakKey = undefined
    this.#streakTenant = undefined
  }

  #open(now: number): void {
    this.#closed = false
    this.#generation += 1
    this.#probe = undefined
    this.#freeAt = now + this.#openMs
  }

  #close(): void {
    this.#closed = true
    this.#generation += 1
    this.#probe = undefined
    this.#endStreak()
  }
}

/** The last two names and their times. That is enough to know, for any name, when another one was last noted. */
class LastTwo {
  #name: string | undefined
  #at = Number.NEGATIVE_INFINITY
  #otherAt = Number.NEGATIVE_INFINITY

  /** What other processes have seen may come late, after something newer. */
  note(name: string, at: number): void {
    if (name === this.#name) this.#at = Math.max(this.#at, at)
    else if (at < this.#at) this.#otherAt = Math.max(this.#otherAt, at)
    else {
      this.#otherAt = this.#at
      this.#name = name
      this.#at = at
    }
  }

  lastExcept(name: string): number {
    return name === this.#name ? this.#otherAt : this.#at
  }
}

class LastParties {
  readonly keys = new LastTwo()
  readonly tenants = new LastTwo()

  note({ keyId, tenantId }: Party, at: number): void {
    this.keys.note(keyId, at)
    this.tenants.note(tenantId, at)
  }
}
