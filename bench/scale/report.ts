/** How the figures of the scale benchmark are printed. */
import type { Effect } from "effect"

export type Say = (line: string) => Effect.Effect<void>

export const figure = (what: string, figures: ReadonlyArray<string>): string =>
  `- ${what}: ${figures.join(", ")}`

export const at = (sorted: ReadonlyArray<number>, share: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
