/**
 * Logs once per outage, however often an operation fails during it, so that an outage does not fill the log. All throttled
 * log lines use it.
 */
import { Effect } from "effect"

export interface OutageLogOptions {
  /** a failure this many ms after the last line is logged again; default: only the first one */
  readonly remindMs?: number
}

export class OutageLog {
  readonly #nowMs: () => number
  readonly #remindMs: number
  #silentUntil = Number.NEGATIVE_INFINITY
  #held = 0

  /** `nowMs`: monotonic milliseconds */
  constructor(nowMs: () => number, { remindMs = Number.POSITIVE_INFINITY }: OutageLogOptions = {}) {
    this.#nowMs = nowMs
    this.#remindMs = remindMs
  }

  /** Runs `line` for the first failure, with the number of failures since the last line, and `quiet` for the others. */
  failed(line: (failures: number) => Effect.Effect<void>, quiet: Effect.Effect<void> = Effect.void) {
    return Effect.suspend(() => {
      this.#held += 1
      const now = this.#nowMs()
      if (now < this.#silentUntil) return quiet
      this.#silentUntil = now + this.#remindMs
      const failures = this.#held
      this.#held = 0
      return line(failures)
    })
  }

  /** Records a success. Runs `line` if there was a failure before. */
  over(line: Effect.Effect<void>): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (this.#silentUntil === Number.NEGATIVE_INFINITY) return Effect.void
      this.#silentUntil = Number.NEGATIVE_INFINITY
      this.#held = 0
      return line
    })
  }
}
