/**
 * Joins all frames of an answer to the single object of a non-stream answer, as Ollama does: the fields of the last frame,
 * with the text, thinking, log probabilities and tool calls of all frames (docs/protocol.md, "Chat").
 *
 * Log probabilities are many times longer than the text, and take three times as much memory as objects. So they are
 * converted to JSON text as they come in.
 */
import { randomUUID } from "node:crypto"
import type { Frame, ToolCall } from "../../domain/Frame.ts"
import type { Json, JsonObject } from "../../domain/Inference.ts"
import { ByteList } from "../../infra/ByteList.ts"

/** Entries that are converted together. */
const entriesPerWrite = 32

const isList = (value: Json): value is ReadonlyArray<Json> => Array.isArray(value)

/** The JSON text of a list that grows. */
class ListText {
  readonly #bytes = new ByteList()

  add(items: ReadonlyArray<Json>): void {
    if (items.length === 0) return
    const text = JSON.stringify(items).slice(1, -1)
    this.#bytes.push(Buffer.from(this.#bytes.size === 0 ? text : `,${text}`))
  }

  get parts(): ReadonlyArray<string | Buffer> {
    return ["[", ...this.#bytes.parts, "]"]
  }
}

/** The JSON text of a list, or of an object of lists and plain values, to which others of the same shape are added. */
class GrowingText {
  readonly #list = new ListText()
  readonly #members = new Map<string, ListText | Json>()
  #isList = true

  add(value: Json): void {
    if (typeof value !== "object" || value === null) return
    if (isList(value)) return this.#list.add(value)
    this.#isList = false
    for (const [key, member] of Object.entries(value)) {
      const existing = this.#members.get(key)
      if (existing instanceof ListText && isList(member)) existing.add(member)
      else if (existing === undefined && isList(member)) {
        const list = new ListText()
        list.add(member)
        this.#members.set(key, list)
      } else this.#members.set(key, member)
    }
  }

  get parts(): ReadonlyArray<string | Buffer> {
    if (this.#isList) return this.#list.parts
    const members = [...this.#members].flatMap(([key, member], i) => [
      `${i === 0 ? "" : ","}${JSON.stringify(key)}:`,
      ...(member instanceof ListText ? member.parts : [JSON.stringify(member)])
    ])
    return ["{", ...members, "}"]
  }
}

export class Fold {
  readonly #logprobsOf: (entries: ReadonlyArray<JsonObject>) => Json
  #last: Frame | undefined
  #text = ""
  #thinking = ""
  readonly #toolCalls: Array<ToolCall> = []
  #entries: Array<JsonObject> = []
  #logprobs: GrowingText | undefined

  /** `logprobsOf`: how the surface writes log probabilities (`Encoder.logprobs`). */
  constructor(logprobsOf: (entries: ReadonlyArray<JsonObject>) => Json) {
    this.#logprobsOf = logprobsOf
  }

  add(frame: Frame): void {
    this.#last = frame
    this.#text += frame.text
    if (frame.thinking !== undefined) this.#thinking += frame.thinking
    if (frame.toolCalls !== undefined) this.#toolCalls.push(...frame.toolCalls)
    if (frame.logprobs === undefined) return
    for (const entry of frame.logprobs) this.#entries.push(entry)
    this.#logprobs ??= new GrowingText()
    if (this.#entries.length >= entriesPerWrite) this.#write(this.#logprobs)
  }

  /** The JSON text of the object that `encode` makes of all frames; undefined when there was no frame. */
  toObject(
    encode: (run: Frame, logprobs?: Json) => Json
  ): string | ReadonlyArray<string | Buffer> | undefined {
    if (this.#last === undefined) return undefined
    // Written one after the other: a spread for each field would copy the frame again.
    const { logprobs: _, ...last } = this.#last
    const run: { -readonly [F in keyof Frame]: Frame[F] } = last
    run.text = this.#text
    if (this.#thinking !== "") run.thinking = this.#thinking
    if (this.#toolCalls.length > 0) run.toolCalls = this.#toolCalls
    if (this.#logprobs === undefined) return JSON.stringify(encode(run))
    this.#write(this.#logprobs)
    // A random text marks the place, so it occurs nowhere else in the answer.
    const place = randomUUID()
    const [before = "", after = ""] = JSON.stringify(encode(run, place)).split(`"${place}"`)
    return [before, ...this.#logprobs.parts, after]
  }

  #write(text: GrowingText): void {
    text.add(this.#logprobsOf(this.#entries))
    this.#entries = []
  }
}
