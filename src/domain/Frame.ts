/**
 * One line of the backend's stream, rebuilt from an allow-list of fields: what is not named here does not
 * exist for the gateway, so a new backend field never leaks by itself (ollama-wire §1.3, §1.12).
 */
import type { JsonObject } from "./Inference.ts"

export interface ToolCall {
  readonly id?: string
  readonly name: string
  readonly arguments: JsonObject
}

/** Native names are kept where native and OpenAI differ; absent counts are absent, not 0. */
export interface Frame {
  readonly createdAt: string
  /** `message.content` of chat, `response` of generate */
  readonly text: string
  readonly thinking?: string
  readonly toolCalls?: ReadonlyArray<ToolCall>
  readonly logprobs?: ReadonlyArray<JsonObject>
  readonly done: boolean
  readonly doneReason?: string
  readonly totalDuration?: number
  readonly loadDuration?: number
  readonly promptEvalCount?: number
  readonly promptEvalDuration?: number
  readonly evalCount?: number
  readonly evalDuration?: number
  /** generate only: token ids of the conversation so far */
  readonly context?: ReadonlyArray<number>
}
