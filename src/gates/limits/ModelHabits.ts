/**
 * Knows which models stream as they generate. The output of a model that is not known to stream counts as unseen, and a
 * request for it holds what such answers used lately (`outputPlan.ts`).
 *
 * A model is known to stream once an answer to any key has shown it. For a key it stays so only while its own answers
 * are not kept back, so that the requests of one key do not slow down the others.
 *
 * At most `mostModels` models and `mostPairs` pairs of key and model are remembered. The one that was used longest
 * ago is forgotten first.
 */
import { Context, Layer } from "effect"
import { makeLruCache } from "../../infra/LruCache.ts"

const mostModels = 256
const mostPairs = 4096

/** Answers of each pair whose length is remembered. One of them may be longer than what a request holds. */
const answers = 100

const pairOf = (key: string, model: string): string => `${key} ${model}`

export class Habits {
  readonly #spoken = makeLruCache<true>(mostModels)
  /** pairs of a key and a model whose last answer was kept back */
  readonly #collected = makeLruCache<true>(mostPairs)
  /** output tokens of the last answers of a model to a key that were not seen while they were generated */
  readonly #unseen = makeLruCache<Array<number>>(mostPairs)

  /** Records that an answer of `model` to `key` was streamed as it was generated. */
  spoken(key: string, model: string): void {
    this.#spoken.set(model, true)
    this.#collected.delete(pairOf(key, model))
  }

  /** Records that an answer of `model` to `key` was kept back. */
  collected(key: string, model: string): void {
    this.#collected.set(pairOf(key, model), true)
  }

  /** Whether `model` is likely to stream to `key`. */
  speaks(key: string, model: string): boolean {
    return this.#spoken.get(model) === true && this.#collected.get(pairOf(key, model)) === undefined
  }

  /** Records an answer of `model` to `key` of `tokens` output tokens that was not seen while it was generated. */
  answeredUnseen(key: string, model: string, tokens: number): void {
    const pair = pairOf(key, model)
    const lengths = this.#unseen.get(pair) ?? []
    lengths.push(tokens)
    if (lengths.length > answers) lengths.shift()
    this.#unseen.set(pair, lengths)
  }

  /**
   * What an answer of `model` to `key` that is not seen uses at most, but for one of a hundred; 0: not known. Answers to other keys
   * say nothing: one long answer would fill the limits of every key.
   */
  usual(key: string, model: string): number {
    const lengths = this.#unseen.get(pairOf(key, model)) ?? []
    let [longest, second] = [0, 0]
    for (const tokens of lengths) {
      if (tokens > longest) [longest, second] = [tokens, longest]
      else if (tokens > second) second = tokens
    }
    return lengths.length < answers ? longest : second
  }
}

/** What this process has seen. */
export class ModelHabits extends Context.Service<ModelHabits, Habits>()("tollgate/gates/limits/ModelHabits") {
  static readonly layer: Layer.Layer<ModelHabits> = Layer.sync(ModelHabits, () => new Habits())
}
