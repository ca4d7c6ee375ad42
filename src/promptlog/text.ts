/** Prompts and answers as text of bounded size, in words a Postgres column takes. */
import type { Frame } from "../domain/Frame.ts"
import type { Json, JsonObject } from "../domain/Inference.ts"

/** UTF-8 bytes kept of a prompt, and as many of an answer. */
export const mostBytes = 65_536

export interface Cut {
  readonly text: string
  readonly truncated: boolean
}

/** Postgres takes no NUL and no lone surrogate. */
const storable = (text: string): string => text.toWellFormed().replaceAll("\u0000", "\ufffd")

/** At most `most` bytes, never half a character. */
export const cut = (text: string, most = mostBytes): Cut => {
  const bytes = Buffer.from(storable(text.slice(0, most)))
  if (bytes.length <= most) return { text: bytes.toString(), truncated: text.length > most }
  let end = most
  // 10xxxxxx goes on with a character that began before it.
  while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--
  return { text: bytes.toString("utf8", 0, end), truncated: true }
}

/** Pictures are told of, not kept: they would push out the words. */
const withoutImages = (key: string, value: Json): Json =>
  key === "images" && Array.isArray(value) ? value.map(() => "(image)") : value

/** What the model was given, as JSON: messages or prompt, system, tools, format. */
export const promptText = (body: JsonObject): Cut => cut(JSON.stringify(body, withoutImages))

/** The answer as it comes: thinking in its tags, tool calls as lines of JSON. Beyond the bound nothing is kept. */
export class AnswerText {
  #text = ""
  #thinking = false
  #bytes = 0

  add(frame: Frame): void {
    if (frame.thinking !== undefined && frame.thinking !== "") {
      this.#put(this.#thinking ? frame.thinking : `<think>${frame.thinking}`)
      this.#thinking = true
    }
    if (frame.text !== "") this.#put(this.#closed(frame.text))
    if (frame.toolCalls !== undefined) {
      this.#put(this.#closed(`${JSON.stringify({ tool_calls: frame.toolCalls })}\n`))
    }
  }

  #closed(text: string): string {
    if (!this.#thinking) return text
    this.#thinking = false
    return `</think>\n${text}`
  }

  #put(text: string): void {
    if (this.#bytes > mostBytes) return
    this.#text += text
    this.#bytes += Buffer.byteLength(text)
  }

  get cut(): Cut {
    return cut(this.#text)
  }
}
