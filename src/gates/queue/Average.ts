import { turnsRemembered } from "./QueueStore.ts"

/** The average of about the last `turnsRemembered` figures. It starts as their plain mean, so that the first count in full. */
export class Average {
  #count = 0
  #mean: number

  /** `assumed`: before the first figure */
  constructor(assumed: number) {
    this.#mean = assumed
  }

  get value(): number {
    return this.#mean
  }

  add(figure: number): void {
    this.#count = Math.min(this.#count + 1, turnsRemembered)
    this.#mean = this.#count === 1 ? figure : this.#mean + (figure - this.#mean) / this.#count
  }
}
