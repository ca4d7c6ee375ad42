/**
 * Counts the output tokens of one answer by its frames. A frame with output counts as one token; a frame with log
 * probabilities counts as many as it has entries. A backend that collects text may send the log probabilities of each
 * token first and the text at the end: both are counted, and the larger count is used.
 *
 * A frame may contain more than one token: a tool call, or text that was held back. When the count of the backend is
 * not believable, the text itself is counted too. `estimate` is the charge. `least` is the smallest possible number of
 * tokens. Answers are cut by `least`, so that the error of the estimate does not cut an honest answer.
 */
import type { Frame } from "../domain/Frame.ts"
import type { JsonObject } from "../domain/Inference.ts"
import { tokensOfBytes } from "../domain/Usage.ts"

/**
 * A frame up to this size counts as one token: the longest tokens of prose have 27 bytes (Russian and Hindi, o200k).
 * A longer token is a run of blanks or of one sign, and counts as several. A backend that puts several tokens into
 * frames of this size is charged at most eight times too little.
 */
export const longestTokenBytes = 32

/** The texts of a frame, one after the other: reasoning, text, tool calls. */
export const textOf = ({ text, thinking, toolCalls }: Frame): string => {
  const output = thinking === undefined ? text : thinking + text
  if (toolCalls === undefined) return output
  return toolCalls.reduce((all, call) => all + call.name + JSON.stringify(call.arguments), output)
}

const tokenOf = ({ token }: JsonObject): string => (typeof token === "string" ? token : "")

/** UTF-8 bytes of a UTF-16 unit; the two halves of a pair have four together. */
const bytesOfUnit = (code: number): number => {
  if (code < 0x80) return 1
  if (code < 0x800) return 2
  return code >= 0xd800 && code <= 0xdfff ? 2 : 3
}

/** UTF-8 bytes of `text`, each run of one sign counted once: some vocabularies have one token for a long run. */
const bytesWithoutRuns = (text: string): number => {
  let bytes = 0
  let before = -1
  for (let i = 0; i < text.length; i += 1) {
    const code = text.charCodeAt(i)
    if (code !== before) bytes += bytesOfUnit(code)
    before = code
  }
  return bytes
}

/** Counts pieces of an answer. Each piece has at least one token. */
class Pieces {
  count = 0
  least = 0
  estimate = 0

  add(text: string): void {
    this.count += 1
    // A UTF-16 unit has at most 3 bytes of UTF-8.
    const bytes = text.length * 3 > longestTokenBytes ? Buffer.byteLength(text) : 0
    if (bytes <= longestTokenBytes) {
      this.least += 1
      this.estimate += 1
    } else {
      this.least += Math.max(1, Math.ceil(bytesWithoutRuns(text) / longestTokenBytes))
      this.estimate += tokensOfBytes(bytes)
    }
  }

  copy(from: Pieces): void {
    this.count = from.count
    this.least = from.least
    this.estimate = from.estimate
  }
}

export class OutputCount {
  readonly #texts = new Pieces()
  readonly #entries = new Pieces()
  #thought = 0
  #answered = false
  readonly #mark = { texts: new Pieces(), entries: new Pieces(), thought: 0, answered: false }

  /** One for each frame, or each entry of log probabilities. */
  get tokens(): number {
    return Math.max(this.#texts.count, this.#entries.count)
  }

  /** The smallest possible number of tokens for the text; at least `tokens`. */
  get least(): number {
    return Math.max(this.#texts.least, this.#entries.least)
  }

  /** The charge for the text when the backend did not count it; at least `least`. */
  get estimate(): number {
    return Math.max(this.#texts.estimate, this.#entries.estimate)
  }

  /**
   * Tokens of reasoning before the answer, once the answer has begun; else 0. When the backend makes two runs, this
   * is the first run.
   */
  get firstRun(): number {
    return this.#answered ? this.#thought : 0
  }

  add(frame: Frame): void {
    const answers = frame.text !== "" || frame.toolCalls !== undefined
    if (answers || frame.thinking !== undefined) this.#texts.add(textOf(frame))
    if (frame.logprobs !== undefined) for (const entry of frame.logprobs) this.#entries.add(tokenOf(entry))
    if (answers) this.#answered = true
    else if (!this.#answered) this.#thought = this.tokens
  }

  /** Remembers this count. */
  mark(): void {
    const mark = this.#mark
    mark.texts.copy(this.#texts)
    mark.entries.copy(this.#entries)
    mark.thought = this.#thought
    mark.answered = this.#answered
  }

  /** Whether anything was counted since the last `mark`. */
  get grown(): boolean {
    return this.estimate > Math.max(this.#mark.texts.estimate, this.#mark.entries.estimate)
  }

  /** Goes back to the count at the last `mark`. */
  reset(): void {
    const mark = this.#mark
    this.#texts.copy(mark.texts)
    this.#entries.copy(mark.entries)
    this.#thought = mark.thought
    this.#answered = mark.answered
  }
}
