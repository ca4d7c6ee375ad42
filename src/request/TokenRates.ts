/**
 * How fast each model is seen to answer, in output tokens a second from the call to the last frame. A client that leaves
 * before a collected answer has come is charged by it: nobody else knows how much had been generated.
 *
 * At most `mostModels` models are remembered; the one that answered longest ago is forgotten first.
 */

/** For a model that has not answered since this process began. */
export const assumedRate = 50
const mostModels = 256
/** How much the newest answer counts. */
const weight = 0.2
/** The time of a shorter answer says more about its prompt than about the model's speed. */
const fewestTokens = 8

export class TokenRates {
  readonly #rates = new Map<string, number>()

  get size(): number {
    return this.#rates.size
  }

  /** An answer of `tokens` output tokens that took `ms` from the call to its last frame. */
  observe(model: string, tokens: number, ms: number): void {
    if (tokens < fewestTokens || ms <= 0) return
    const [rate, before] = [(tokens * 1000) / ms, this.#rates.get(model)]
    this.#rates.delete(model)
    this.#rates.set(model, before === undefined ? rate : before + weight * (rate - before))
    if (this.#rates.size <= mostModels) return
    const { value: oldest } = this.#rates.keys().next()
    if (oldest !== undefined) this.#rates.delete(oldest)
  }

  /** Tokens that `model` is likely to have generated in `ms`. */
  estimate(model: string, ms: number): number {
    return Math.ceil(((this.#rates.get(model) ?? assumedRate) * Math.max(0, ms)) / 1000)
  }
}
