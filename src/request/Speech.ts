/**
 * Finds out whether one answer is streamed as it is generated, or kept back and sent at once. Nobody sees output that
 * is kept back, so a model is trusted to stream (`TokenRates`) only after an answer has shown it.
 */
import { expectedOutput } from "../domain/outputPlan.ts"
import type { TokenRates } from "../gates/limits/TokenRates.ts"

/**
 * This many tokens in this time were not generated in that time: it would be 2,560 tokens a second. The time is
 * longer than the gateway itself leaves bytes unread.
 */
const atOnceMs = 100
/**
 * Number of reads with output after which an answer counts as streamed. Fewer come of one text that the network
 * splits.
 */
const enoughReads = 8
/** A shorter silence is a pause between two tokens. */
const silentMs = 1000

export class Speech {
  readonly #nowMs: () => number
  readonly #rates: TokenRates
  readonly #key: string
  readonly #model: string
  #reads = 0
  /** start of the tokens in `#atOnce` */
  #since = Number.NEGATIVE_INFINITY
  #atOnce = 0
  #collected = false
  /** time of the last output */
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

  /** Records output tokens that came in one read. */
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

  /** How long no output came before `nowMs`, when that is longer than a pause between tokens; else 0. */
  silentMsAt(nowMs: number): number {
    const ms = nowMs - this.#heardAt
    return ms < silentMs ? 0 : ms
  }
}
