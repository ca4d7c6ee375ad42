/**
 * How soon a worker that died is replaced. The first deaths of a minute are replaced at once, further ones later and later,
 * so that workers that die at their start do not use up the machine. After too many the gateway gives up and ends, so that
 * whoever runs it sees that.
 */

/** Deaths are counted for this long. */
export const windowMs = 60_000
const firstDelayMs = 250
const maxDelayMs = 5000

/** Deaths in `windowMs` that are replaced at once: all workers may die together, for example when memory runs out. */
export const freeDeathsOf = (workers: number): number => Math.max(3, workers)
/** Deaths in `windowMs` after which the gateway gives up. */
export const maxDeathsOf = (workers: number): number => Math.max(10, 3 * workers)

export type Next = { readonly delayMs: number } | "give up"

export class Restarts {
  readonly #workers: number
  #deaths: ReadonlyArray<number> = []

  constructor(workers: number) {
    this.#workers = workers
  }

  /** Records a death at `now`, in monotonic milliseconds. */
  died(now: number): Next {
    this.#deaths = [...this.#deaths.filter((at) => now - at < windowMs), now]
    const deaths = this.#deaths.length
    if (deaths > maxDeathsOf(this.#workers)) return "give up"
    const late = deaths - freeDeathsOf(this.#workers)
    return { delayMs: late <= 0 ? 0 : Math.min(maxDelayMs, firstDelayMs * 2 ** (late - 1)) }
  }
}
