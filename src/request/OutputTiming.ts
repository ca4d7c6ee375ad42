/**
 * Measures whether one answer is streamed as it is generated, or held back and sent at once. Output that is held back
 * cannot be metered, so a model is trusted to stream (`ModelHabits`) only after an answer has shown it.
 */
import { expectedOutput } from "../domain/outputPlan.ts"
import type { Habits } from "../gates/limits/ModelHabits.ts"

/**
 * When more than `expectedOutput` tokens come in this time, they were held back: no model generates 2,560 tokens a second.
 * The gateway itself never leaves bytes unread for so long.
 */
const atOnceMs = 100
/**
 * An answer with output in this many reads counts as streamed. The network may split one text into a few reads.
 */
const enoughReads = 8

export class OutputTiming {
  readonly #nowMs: () => number
  readonly #habits: Habits
  readonly #key: string
  readonly #model: string
  #reads = 0
  /** start of the tokens in `#together` */
  #since = Number.NEGATIVE_INFINITY
  #together = 0
  #collected = false

  constructor(habits: Habits, key: string, model: string, nowMs: () => number) {
    this.#habits = habits
    this.#key = key
    this.#model = model
    this.#nowMs = nowMs
  }

  /** Records output tokens that came in one read. */
  record(tokens: number): void {
    if (tokens <= 0) return
    const at = this.#nowMs()
    if (at - this.#since > atOnceMs) {
      this.#since = at
      this.#together = 0
    }
    this.#together += tokens
    this.#reads += 1
    if (this.#collected) return
    if (this.#together > expectedOutput) {
      this.#collected = true
      this.#habits.collected(this.#key, this.#model)
    } else if (this.#reads === enoughReads) this.#habits.spoken(this.#key, this.#model)
  }
}
