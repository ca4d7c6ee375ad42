/**
 * Joins all frames of an answer to one frame, as Ollama does for an answer without a stream: the fields of the last frame,
 * with the text, thinking, log probabilities and tool calls of all frames (docs/protocol.md, "Chat").
 */
import type { Frame, ToolCall } from "../../domain/Frame.ts"
import type { JsonObject } from "../../domain/Inference.ts"

export class Fold {
  #last: Frame | undefined
  #text = ""
  #thinking = ""
  readonly #toolCalls: Array<ToolCall> = []
  readonly #logprobs: Array<JsonObject> = []

  add(frame: Frame): void {
    this.#last = frame
    this.#text += frame.text
    this.#thinking += frame.thinking ?? ""
    for (const call of frame.toolCalls ?? []) this.#toolCalls.push(call)
    for (const entry of frame.logprobs ?? []) this.#logprobs.push(entry)
  }

  /** All frames in one; undefined when there was none. */
  get frame(): Frame | undefined {
    if (this.#last === undefined) return undefined
    return {
      ...this.#last,
      text: this.#text,
      ...(this.#thinking === "" ? {} : { thinking: this.#thinking }),
      ...(this.#toolCalls.length === 0 ? {} : { toolCalls: this.#toolCalls }),
      ...(this.#logprobs.length === 0 ? {} : { logprobs: this.#logprobs })
    }
  }
}
