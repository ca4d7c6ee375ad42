/**
 * Output tokens of one answer, as far as its frames tell. A frame that says something is taken for one token; a frame
 * with log probabilities for as many as it has entries. A backend that collects text may send the log probabilities of
 * each token alone, and the text at the end: the two are counted apart, and the larger count is true.
 */
import type { Frame } from "../domain/Frame.ts"

export class OutputCount {
  #spoken = 0
  #entries = 0
  #thought = 0
  #answered = false
  #mark = { spoken: 0, entries: 0, thought: 0, answered: false }

  get tokens(): number {
    return Math.max(this.#spoken, this.#entries)
  }

  /**
   * Tokens of reasoning that came before any answer, once an answer has come; else 0. When the backend makes two runs of
   * an answer, this is the first of them.
   */
  get firstRun(): number {
    return this.#answered ? this.#thought : 0
  }

  add(frame: Frame): void {
    const answers = frame.text !== "" || frame.toolCalls !== undefined
    if (answers || frame.thinking !== undefined) this.#spoken += 1
    if (frame.logprobs !== undefined) this.#entries += frame.logprobs.length
    if (answers) this.#answered = true
    else if (!this.#answered) this.#thought = this.tokens
  }

  /** Remembers this count. */
  mark(): void {
    const mark = this.#mark
    mark.spoken = this.#spoken
    mark.entries = this.#entries
    mark.thought = this.#thought
    mark.answered = this.#answered
  }

  /** Goes back to the count at the last `mark`. */
  reset(): void {
    const mark = this.#mark
    this.#spoken = mark.spoken
    this.#entries = mark.entries
    this.#thought = mark.thought
    this.#answered = mark.answered
  }
}
