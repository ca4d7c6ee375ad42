/**
 * Sampling options. Ollama does not check them: it allocates `repeat_last_n` numbers, and its runner ends on a penalty of
 * -1e38. A value beyond its range is a 400.
 *
 * For: every Ollama up to 0.24.0. Shown by `real/survival.real.ts` (options by name).
 */

/** The least and the most of an option, both inclusive. */
export const ranges = {
  temperature: [0, 100],
  share: [0, 1],
  penalty: [-100, 100],
  /** The runner divides by it. */
  repeatPenalty: [0.01, 100],
  topK: [-1, 262_144],
  /** The runner allocates as many. */
  tokens: [-1, 131_072],
  /** The largest float64 below 2^63. */
  seed: [-(2 ** 63), 2 ** 63 - 1024]
} as const

/** Smaller values become 0. The runner divides by a temperature, and 1e-38 is too small for that. */
export const smallest = 1e-6
