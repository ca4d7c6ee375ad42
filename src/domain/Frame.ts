/**
 * One line of the backend's stream. Only the fields named here are copied, so a new field of the backend does not reach
 * clients (docs/protocol.md, "Chat").
 */
import type { JsonObject } from "./Inference.ts"

export interface ToolCall {
  readonly id?: string
  readonly name: string
  readonly arguments: JsonObject
}

/** Names follow Ollama where Ollama and OpenAI differ. An absent count stays absent; it is not 0. */
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
  /** of `promptEvalCount`: tokens that the backend had in its prefix cache */
  readonly promptEvalCachedCount?: number
  readonly promptEvalDuration?: number
  readonly evalCount?: number
  readonly evalDuration?: number
  /** generate only: token ids of the conversation so far */
  readonly context?: ReadonlyArray<number>
}

/** Whether a frame has nothing but text, as nearly all frames have. */
export const hasOnlyText = ({ done, logprobs, thinking, toolCalls }: Frame): boolean =>
  !done && thinking === undefined && toolCalls === undefined && logprobs === undefined

/** The answer of an embedding model (docs/protocol.md, "Embeddings"). An absent count stays absent; it is not 0. */
export interface Embeddings {
  /** one per input, in the order of the inputs; every number is finite as a float32 */
  readonly vectors: ReadonlyArray<ReadonlyArray<number>>
  /** the JSON of each vector, as the model server wrote it: to write numbers again takes twice the time of reading them */
  readonly texts?: ReadonlyArray<string>
  /** nanoseconds */
  readonly totalDuration?: number
  readonly loadDuration?: number
  /** the older endpoint does not send it */
  readonly promptEvalCount?: number
}

/** The JSON of each vector. */
export const jsonOf = ({ texts, vectors }: Embeddings): ReadonlyArray<string> =>
  texts ?? vectors.map((vector) => JSON.stringify(vector))
