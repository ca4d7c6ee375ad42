/**
 * A circuit breaker as a state machine without a clock. Times are in milliseconds and must not go back.
 *
 * Closed, it counts consecutive failures, and opens at `failures` of them. Open, it refuses calls for `openMs`. Then it is
 * half-open: one call at a time passes as a probe. The probe's first frame closes it, and the probe's failure opens it again. A
 * probe that has no result after a third of `openMs` no longer keeps the next one waiting: it may be slow by what it asks for.
 */

export type BreakerState = "closed" | "open" | "half-open"

export interface CircuitOptions {
  /** consecutive failures that open it; at least 1 */
  readonly failures: number
  readonly openMs: number
}

/** The result of a call. A client that left is `ignored`. */
export type CallResult = "success" | "failure" | "ignored"

/** What a result has changed. */
export type Change = "opened" | "closed" | undefined

/** Lets one call pass. Its result must be recorded. It is ignored when the generation is no longer the circuit's. */
export interface Pass {
  generation: number
  probe: boolean
}

/** While a probe runs, its result may come at any moment. */
const probingWaitMs = 1000

/** The part of `openMs` for which a probe is alone. */
const probePart = 1 / 3

export class Circuit {
  readonly #options: CircuitOptions
  /** grows each time that it opens or closes */
  #generation = 0
  #streak = 0
  /** the only key in the streak; undefined: several, or the key does not matter */
  #onlyKey: string | undefined
  /** the time from which the next probe may start; undefined: it is closed */
  #probeFrom: number | undefined
  #probe: Pass | undefined

  constructor(options: CircuitOptions) {
    this.#options = options
  }

  state(now: number): BreakerState {
    if (this.#probeFrom === undefined) return "closed"
    return this.#probe === undefined && now < this.#probeFrom ? "open" : "half-open"
  }

  /** The milliseconds until a call may pass; 0: now. */
  waitMs(now: number): number {
    if (this.#probeFrom === undefined || now >= this.#probeFrom) return 0
    return this.#probe === undefined ? this.#probeFrom - now : probingWaitMs
  }

  /** Lets a call pass. Only when `waitMs` is 0. */
  admit(now: number): Pass {
    const pass = { generation: this.#generation, probe: this.#probeFrom !== undefined }
    if (pass.probe) {
      this.#probe = pass
      this.#probeFrom = now + this.#options.openMs * probePart
    }
    return pass
  }

  /**
   * Records the first frame, which closes the circuit after a probe. It does not end a streak, because streams that all break
   * after it must open the circuit.
   */
  began(pass: Pass): Change {
    if (!pass.probe || pass.generation !== this.#generation) return undefined
    const change = this.#close()
    pass.generation = this.#generation
    pass.probe = false
    return change
  }

  /** Records how a call ended. A streak of one `key` alone does not open the circuit; without `key` it does. */
  record(pass: Pass, result: CallResult, now: number, key?: string): Change {
    if (pass.generation !== this.#generation) return undefined
    if (this.#probeFrom === undefined) return this.#count(result, now, key)
    if (result === "success") return this.#close()
    // A probe that was given up may still close the circuit. Its failure says nothing new.
    if (pass === this.#probe) {
      this.#probe = undefined
      this.#probeFrom = result === "failure" ? now + this.#options.openMs : now
    }
    return undefined
  }

  #count(result: CallResult, now: number, key: string | undefined): Change {
    if (result === "success") this.#streak = 0
    if (result !== "failure") return undefined
    this.#onlyKey = this.#streak === 0 || this.#onlyKey === key ? key : undefined
    this.#streak += 1
    if (this.#streak < this.#options.failures || this.#onlyKey !== undefined) return undefined
    this.#generation += 1
    this.#probeFrom = now + this.#options.openMs
    return "opened"
  }

  #close(): Change {
    this.#generation += 1
    this.#probe = undefined
    this.#probeFrom = undefined
    this.#streak = 0
    return "closed"
  }
}
