/**
 * The circuit breaker as a state machine, without a clock: every method takes the time in milliseconds, which must never
 * go back. `breaker.ts` runs calls through it.
 *
 * Closed: `failures` consecutive failures open it. One key cannot close the backend to the others: a streak that one key
 * alone caused does not open it while another key was served within the last `openMs`.
 *
 * Open for `openMs`, then half-open: one call is let through as a probe, and its first frame closes the circuit. A probe
 * without a verdict after `openMs` no longer keeps the next one out. The key of the last probe is passed over for `openMs`
 * while another key is in the house, that is, asked within the last `4 * openMs`; so one key alone still recovers, and
 * nobody is locked out for good.
 *
 * Memory: two keys for who was served, two for who asked, and the key of the last probe, however many keys there are.
 */

/** `open` refuses; `half-open` lets the next request through, one at a time. */
export type BreakerState = "closed" | "open" | "half-open"

export interface CircuitOptions {
  /** consecutive failures that open it; at least 1 */
  readonly failures: number
  readonly openMs: number
}

/** What a call showed of the backend; a client that left showed nothing. */
export type Outcome = "success" | "failure" | "ignored"

export interface Admission {
  /** Results of an earlier generation are ignored: the circuit has opened or closed since. */
  readonly generation: number
  readonly key: string
  readonly probe: boolean
}

/** The call must not be made now. */
export class Refusal {
  readonly waitMs: number
  constructor(waitMs: number) {
    this.waitMs = waitMs
  }
}

/** While a probe is under way its verdict may come at any moment. */
const probingWaitMs = 1000

export class Circuit {
  readonly #failures: number
  readonly #openMs: number
  readonly #served = new LastTwo()
  readonly #asked = new LastTwo()
  #generation = 0
  #closed = true
  #streak = 0
  /** The only key in the streak; undefined when there are several, or no streak. */
  #streakKey: string | undefined
  /** Not closed: when the next probe may start. */
  #freeAt = 0
  /** Not closed: the probe under way. */
  #probe: Admission | undefined
  #lastProbeKey: string | undefined

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

  /** Notes that `key` asked; answers milliseconds until a call of it could be let through, 0: now. Reserves nothing. */
  waitMs(key: string, now: number): number {
    this.#asked.note(key, now)
    if (this.#closed) return 0
    if (now < this.#freeAt) return this.#probe === undefined ? this.#freeAt - now : probingWaitMs
    const passedOver = key === this.#lastProbeKey && now - this.#asked.lastButBy(key) <= 4 * this.#openMs
    return passedOver ? Math.max(0, this.#freeAt + this.#openMs - now) : 0
  }

  /** Lets a call of `key` through or refuses it. Every admission needs its `record`. */
  admit(key: string, now: number): Admission | Refusal {
    const waitMs = this.waitMs(key, now)
    if (waitMs > 0) return new Refusal(waitMs)
    const admission: Admission = { generation: this.#generation, key, probe: !this.#closed }
    if (admission.probe) {
      this.#probe = admission
      this.#lastProbeKey = key
      this.#freeAt = now + this.#openMs
    }
    return admission
  }

  /**
   * The first frame is in. It proves a probe, but does not end a streak: streams that all break after it open the circuit
   * too. Answers the admission that the end of the stream is recorded with.
   */
  began(admission: Admission, now: number): Admission {
    this.#served.note(admission.key, now)
    if (!admission.probe || admission.generation !== this.#generation) return admission
    this.#close()
    return { generation: this.#generation, key: admission.key, probe: false }
  }

  /** How a call, or the stream behind its head, ended. */
  record(admission: Admission, outcome: Outcome, now: number): void {
    if (outcome === "success") this.#served.note(admission.key, now)
    if (admission.generation !== this.#generation) return
    if (this.#closed) this.#count(admission.key, outcome, now)
    else if (outcome === "success") this.#close()
    // A probe that was given up on can still prove the backend, but not speak against it.
    else if (admission === this.#probe) {
      if (outcome === "failure") this.#open(now)
      else {
        this.#probe = undefined
        this.#freeAt = now
      }
    }
  }

  #count(key: string, outcome: Outcome, now: number): void {
    if (outcome === "success") {
      this.#streak = 0
      this.#streakKey = undefined
    } else if (outcome === "failure") {
      this.#streakKey = this.#streak === 0 || this.#streakKey === key ? key : undefined
      this.#streak += 1
      if (this.#streak >= this.#failures && !this.#causedByOne(now)) this.#open(now)
    }
  }

  /** Whether the streak speaks against one key and not against the backend. */
  #causedByOne(now: number): boolean {
    return this.#streakKey !== undefined && now - this.#served.lastButBy(this.#streakKey) <= this.#openMs
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
    this.#streak = 0
    this.#streakKey = undefined
  }
}

/** The last two keys and when each was last noted: enough to know about any key when somebody else was last here. */
class LastTwo {
  #key: string | undefined
  #at = Number.NEGATIVE_INFINITY
  #otherAt = Number.NEGATIVE_INFINITY

  note(key: string, now: number): void {
    if (key !== this.#key) {
      this.#otherAt = this.#at
      this.#key = key
    }
    this.#at = now
  }

  lastButBy(key: string): number {
    return key === this.#key ? this.#otherAt : this.#at
  }
}
