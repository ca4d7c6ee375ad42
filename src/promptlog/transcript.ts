/** Collects a request whose key has opted in, as a row of texts of bounded size without characters that Postgres refuses. */
import { Effect } from "effect"
import type { Arrival } from "../domain/AuditRecord.ts"
import type { Caller } from "../domain/Caller.ts"
import { clientText } from "../domain/clientText.ts"
import type { Frame } from "../domain/Frame.ts"
import type { Json, PreparedRequest } from "../domain/Inference.ts"
import { isObject, readJson } from "../domain/json.ts"
import { storable } from "../domain/text.ts"

/** UTF-8 bytes stored of a prompt, and as many of an answer. */
export const maxBytes = 65_536

/** The memory of a transcript: its answer, and its prompt when it ends. A character may take two bytes. */
export const transcriptBytes = 4 * maxBytes

export interface Cut {
  readonly text: string
  readonly truncated: boolean
}

/** Cuts to at most `limit` bytes, never inside a character. */
export const cut = (text: string, limit = maxBytes): Cut => {
  const bytes = Buffer.from(storable(text.slice(0, limit)))
  if (bytes.length <= limit) return { text: bytes.toString(), truncated: text.length > limit }
  let end = limit
  // A byte 10xxxxxx continues a character.
  while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--
  return { text: bytes.toString("utf8", 0, end), truncated: true }
}

/** Images are replaced by a word: they would use up the space of the text. */
const withoutImages = (key: string, value: Json): Json =>
  key === "images" && Array.isArray(value) ? value.map(() => "(image)") : value

/** The model's input as JSON: messages or prompt, system, tools, format. */
const promptText = ({ text, think }: PreparedRequest): Cut => {
  const fields = readJson(text.json)
  return cut(JSON.stringify(isObject(fields) ? { ...fields, think } : {}, withoutImages))
}

/** Collects the answer: thinking in tags, tool calls as lines of JSON. Text beyond the bound is dropped. */
class AnswerText {
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
    if (this.#bytes > maxBytes) return
    this.#text += text
    this.#bytes += Buffer.byteLength(text)
  }

  get cut(): Cut {
    return cut(this.#text)
  }
}

export interface PromptRow {
  readonly request_id: string
  readonly key_id: string
  readonly created_at: string
  readonly endpoint: string
  readonly prompt: string
  readonly answer: string
  readonly truncated: boolean
}

const promptRow = (
  caller: Caller,
  arrival: Arrival,
  request: PreparedRequest,
  answer: AnswerText
): PromptRow => {
  const [asked, answered] = [promptText(request), answer.cut]
  return {
    request_id: arrival.requestId,
    key_id: caller.keyId,
    created_at: new Date(arrival.arrivedAt).toISOString(),
    endpoint: clientText(arrival.endpoint, 256),
    prompt: asked.text,
    answer: answered.text,
    truncated: asked.truncated || answered.truncated
  }
}

/** Collects one request, with a bounded size. */
export interface Transcript {
  add(frames: ReadonlyArray<Frame>): void
  /** Queues what was collected. Never fails, never waits. */
  readonly keep: Effect.Effect<void>
}

/**
 * undefined when the key has not opted in; then nothing is collected. `keep` queues the finished row. It never fails and never
 * waits.
 */
export const makeTranscript =
  (keep: (row: PromptRow) => Effect.Effect<void>) =>
  (caller: Caller, arrival: Arrival, request: PreparedRequest): Transcript | undefined => {
    if (caller.promptLogDays === undefined) return undefined
    const answer = new AnswerText()
    return {
      add: (frames) => {
        for (const frame of frames) answer.add(frame)
      },
      keep: Effect.suspend(() => keep(promptRow(caller, arrival, request, answer)))
    }
  }
