/**
 * How each model is seen to answer: how fast, in output tokens a second from the call to the last frame, and whether it
 * speaks as it generates. A client that leaves output which nobody has seen is charged by the speed: nobody else knows how
 * much had been generated. A request of a model that is not known to speak holds its whole bound (`outputPlan.ts`).
 *
 * A model is known to speak once an answer to anybody has shown it, and for a key only as long as its own answers are not
 * kept back: what one key asks for must not slow the others down.
 *
 * At most `mostModels` models and `mostPairs` pairs of key and model are remembered; the one that answered longest ago is
 * forgotten first.
 */
import { Context, Layer } from "effect"

/** For a model that has not answered since this process began. */
export const assumedRate = 50
const mostModels = 256
const mostPairs = 4096
/** How much the newest answer counts. */
const weight = 0.2
/** The time of a shorter answer says more about its prompt than about the model's speed. */
const fewestTokens = 8

/** Puts `value` at the end, and drops the first when there are more than `most`. */
const remember = <A>(map: Map<string, A>, name: string, value: A, most: number): void => {
  map.delete(name)
  map.set(name, value)
  if (map.size <= most) return
  const { value: oldest } = map.keys().next()
  if (oldest !== undefined) map.delete(oldest)
}

const pairOf = (key: string, model: string): string => `${key} ${model}`

export class TokenRates {
  readonly #rates = new Map<string, number>()
  readonly #spoken = new Map<string, true>()
  /** pairs of a key and a model whose last answer was kept back */
  readonly #collected = new Map<string, true>()

  get size(): number {
    return this.#rates.size
  }

  /** An answer of `tokens` output tokens that took `ms` from the call to its last frame. */
  observe(model: string, tokens: number, ms: number): void {
    if (tokens < fewestTokens || ms <= 0) return
    const [rate, before] = [(tokens * 1000) / ms, this.#rates.get(model)]
    remember(this.#rates, model, before === undefined ? rate : before + weight * (rate - before), mostModels)
  }

  /** An answer of `model` to `key` came as it was generated. */
  spoken(key: string, model: string): void {
    remember(this.#spoken, model, true, mostModels)
    this.#collected.delete(pairOf(key, model))
  }

  /** An answer of `model` to `key` was kept back. */
  collected(key: string, model: string): void {
    remember(this.#collected, pairOf(key, model), true, mostPairs)
  }

  /** Whether `model` is likely to speak to `key` as it generates. */
  speaks(key: string, model: string): boolean {
    return this.#spoken.has(model) && !this.#collected.has(pairOf(key, model))
  }

  /** Tokens that `model` is likely to have generated in `ms`. */
  estimate(model: string, ms: number): number {
    return Math.ceil(((this.#rates.get(model) ?? assumedRate) * Math.max(0, ms)) / 1000)
  }
}

/** What this process has seen of its models. */
export class ModelRates extends Context.Service<ModelRates, TokenRates>()(
  "tollgate/gates/limits/ModelRates"
) {
  static readonly layer: Layer.Layer<ModelRates> = Layer.sync(ModelRates, () => new TokenRates())
}
