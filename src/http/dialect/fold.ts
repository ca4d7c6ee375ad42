/**
 * Joins all frames of an answer to the single object of a non-stream answer, as Ollama does: the fields of the last frame,
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
    if (frame.thinking !== undefined) this.#thinking += frame.thinking
    if (frame.toolCalls !== undefined) this.#toolCalls.push(...frame.toolCalls)
    if (frame.logprobs !== undefined) this.#logprobs.push(...frame.logprobs)
  }

  /** The whole run as one frame; undefined when there was none. */
  get whole(): Frame | undefined {
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
