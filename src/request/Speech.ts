/**
 * How one answer is spoken: as it is generated, or kept back and sent at once. What is generated and kept back is seen by
 * nobody, so a model is trusted to speak (`TokenRates`) only after an answer of its own has shown it.
 */
import { expectedOutput } from "../domain/outputPlan.ts"
import type { TokenRates } from "../gates/limits/TokenRates.ts"

/**
 * More tokens than are held ahead, in so short a time, were not generated in that time: it would be 2,560 tokens a second.
 * Longer than the gateway itself leaves bytes unread.
 */
const atOnceMs = 100
/** Reads with output after which an answer is spoken as it is generated. Fewer come of one text that is cut on its way. */
const enoughReads = 8
/** A shorter silence is the pause between two tokens. */
const silentMs = 1000

export class Speech {
  readonly #nowMs: () => number
  readonly #rates: TokenRates
  readonly #key: string
  readonly #model: string
  #reads = 0
  /** since when the tokens in `#atOnce` came */
  #since = Number.NEGATIVE_INFINITY
  #atOnce = 0
  #collected = false
  /** when output was last heard */
  #heardAt = 0

  constructor(rates: TokenRates, key: string, model: string, nowMs: () => number) {
    this.#rates = rates
    this.#key = key
    this.#model = model
    this.#nowMs = nowMs
  }

  /** Whether any output has come. */
  get begun(): boolean {
    return this.#reads > 0
  }

  /** So many output tokens came in one read. */
  heard(tokens: number): void {
    if (tokens <= 0) return
    const at = this.#nowMs()
    if (at - this.#since > atOnceMs) {
      this.#since = at
      this.#atOnce = 0
    }
    this.#heardAt = at
    this.#atOnce += tokens
    this.#reads += 1
    if (this.#collected) return
    if (this.#atOnce > expectedOutput) {
      this.#collected = true
      this.#rates.collected(this.#key, this.#model)
    } else if (this.#reads === enoughReads) this.#rates.spoken(this.#key, this.#model)
  }

  /** How long nothing was heard at `nowMs`, where that is longer than a pause between tokens; else 0. */
  silentMsAt(nowMs: number): number {
    const ms = nowMs - this.#heardAt
    return ms < silentMs ? 0 : ms
  }
}
