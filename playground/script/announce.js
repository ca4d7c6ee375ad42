/** What a screen reader is told: whole sentences of an answer, each once, and how it ended. */
import { $ } from "./dom.js"

export const announce = (text) => {
  $("status").textContent = text
}

const pauseMs = 1500

/** Collects an answer and tells it in sentences, several at once when they come fast. */
export class Speaker {
  #heard
  #next = 0

  /** `heard`: how many characters of the answer were told before. */
  constructor(heard = 0) {
    this.#heard = heard
  }

  hear(text) {
    const now = performance.now()
    if (now < this.#next) return
    const end = Math.max(
      ...[". ", "! ", "? ", ".\n", "!\n", "?\n", ":\n", "\n\n", "。"].map((mark) => text.lastIndexOf(mark))
    )
    if (end < this.#heard) return
    announce(text.slice(this.#heard, end + 1).trim())
    this.#heard = end + 1
    this.#next = now + pauseMs
  }

  /** The rest, and `how` it ended, as one announcement. */
  end(text, how) {
    announce(`${text.slice(this.#heard).trim()} ${how}`.trim())
  }
}
