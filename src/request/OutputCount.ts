/**
 * Output tokens of one answer, as far as its frames tell. A frame that says something is taken for one token; a frame
 * with log probabilities for as many as it has entries. A backend that collects text may send the log probabilities of
 * each token alone, and the text at the end: the two are counted apart, and the larger count is true.
 *
 * A frame may carry more than one token: a tool call, text that was held back, or whatever an odd backend sends. Where the
 * backend's own count is not believed, the text itself is counted too. `estimate` is what it costs. `least` is how many
 * tokens it must be: an answer is cut by this one, so that the estimate's error does not cut an honest answer.
 */
import type { Frame } from "../domain/Frame.ts"
import type { JsonObject } from "../domain/Inference.ts"
import { tokensOfBytes } from "../domain/textTokens.ts"

/**
 * A frame of so many bytes may be one token, and is counted as one: the longest tokens of prose have 27 bytes (Russian and
 * Hindi, o200k). A longer token is a run of blanks or of one sign, and is taken for several. A backend that puts several
 * tokens into frames of this size is charged at most eight times too little.
 */
const longestTokenBytes = 32
/**
 * The text of a longer frame has at most so many bytes to a token. Measured with o200k and cl100k: 6 in English, German and
 * program text, 8 in Thai, 10.5 in Russian and Hindi.
 */
const mostBytesPerToken = 16

const callBytes = ({ name, arguments: given }: { readonly name: string; readonly arguments: JsonObject }) =>
  Buffer.byteLength(name) + Buffer.byteLength(JSON.stringify(given))

const textBytes = ({ text, thinking, toolCalls }: Frame): number => {
  let bytes = Buffer.byteLength(text)
  if (thinking !== undefined) bytes += Buffer.byteLength(thinking)
  if (toolCalls !== undefined) for (const call of toolCalls) bytes += callBytes(call)
  return bytes
}

const entryBytes = ({ token }: JsonObject): number =>
  typeof token === "string" ? Buffer.byteLength(token) : 0

/** Pieces of an answer, each of them at least one token. */
class Pieces {
  count = 0
  least = 0
  estimate = 0

  add(bytes: number): void {
    const long = bytes > longestTokenBytes
    this.count += 1
    this.least += long ? Math.ceil(bytes / mostBytesPerToken) : 1
    this.estimate += long ? tokensOfBytes(bytes) : 1
  }

  copy(from: Pieces): void {
    this.count = from.count
    this.least = from.least
    this.estimate = from.estimate
  }
}

export class OutputCount {
  readonly #spoken = new Pieces()
  readonly #entries = new Pieces()
  #thought = 0
  #answered = false
  readonly #mark = { spoken: new Pieces(), entries: new Pieces(), thought: 0, answered: false }

  /** One for each frame, or each entry of log probabilities. */
  get tokens(): number {
    return Math.max(this.#spoken.count, this.#entries.count)
  }

  /** The least number of tokens that so much text can be; not less than `tokens`. */
  get least(): number {
    return Math.max(this.#spoken.least, this.#entries.least)
  }

  /** What the text is charged where nobody has counted it; not less than `least`. */
  get estimate(): number {
    return Math.max(this.#spoken.estimate, this.#entries.estimate)
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
    if (answers || frame.thinking !== undefined) this.#spoken.add(textBytes(frame))
    if (frame.logprobs !== undefined) for (const entry of frame.logprobs) this.#entries.add(entryBytes(entry))
    if (answers) this.#answered = true
    else if (!this.#answered) this.#thought = this.tokens
  }

  /** Remembers this count. */
  mark(): void {
    const mark = this.#mark
    mark.spoken.copy(this.#spoken)
    mark.entries.copy(this.#entries)
    mark.thought = this.#thought
    mark.answered = this.#answered
  }

  /** Goes back to the count at the last `mark`. */
  reset(): void {
    const mark = this.#mark
    this.#spoken.copy(mark.spoken)
    this.#entries.copy(mark.entries)
    this.#thought = mark.thought
    this.#answered = mark.answered
  }
}
