/**
 * One line of the backend's stream. Only the fields named here are copied, so a new field of the backend does not reach
 * clients (docs/protocol.md, "Chat").
 */
import type { Array as Arr, Pull, Stream } from "effect"
import type { BackendFailed, ShuttingDown, Unavailable } from "./Errors.ts"
import type { JsonObject } from "./Inference.ts"
import { isCount } from "./json.ts"

/** The counts and durations (nanoseconds) of an answer by the names of Ollama, in its order. */
const countNames = [
  ["totalDuration", "total_duration"],
  ["loadDuration", "load_duration"],
  ["promptEvalCount", "prompt_eval_count"],
  // Of `promptEvalCount`: tokens that the backend had in its prefix cache.
  ["promptEvalCachedCount", "prompt_eval_cached_count"],
  ["promptEvalDuration", "prompt_eval_duration"],
  ["evalCount", "eval_count"],
  ["evalDuration", "eval_duration"]
] as const

/** An absent count stays absent; it is not 0. */
type Counts = { readonly [C in (typeof countNames)[number][0]]?: number }

/** The counts in an answer of the backend. */
export const countsIn = (answer: JsonObject): Counts =>
  Object.fromEntries(
    countNames.flatMap(([count, name]) => (isCount(answer[name]) ? [[count, answer[name]]] : []))
  )

/** The counts as Ollama writes them. */
export const namedCounts = (counts: Counts): { readonly [name: string]: number | undefined } =>
  Object.fromEntries(countNames.map(([count, name]) => [name, counts[count]]))

export interface ToolCall {
  readonly id?: string
  readonly name: string
  readonly arguments: JsonObject
}

/** Names follow Ollama where Ollama and OpenAI differ. */
export interface Frame extends Counts {
  readonly createdAt: string
  /** `message.content` of chat, `response` of generate */
  readonly text: string
  readonly thinking?: string
  readonly toolCalls?: ReadonlyArray<ToolCall>
  readonly logprobs?: ReadonlyArray<JsonObject>
  readonly done: boolean
  readonly doneReason?: string
  /** generate only: token ids of the conversation so far */
  readonly context?: ReadonlyArray<number>
}

/** All frames of one read. */
export type Frames = Arr.NonEmptyReadonlyArray<Frame>

/** How an answer can break. */
export type Broken = BackendFailed | ShuttingDown | Unavailable

/** The frames of an answer, a chunk for each read. The last frame, and no other, is `done`. */
export type Answer<E = Broken> = Stream.Stream<Frame, E>

/** Reads an answer. */
export type AnswerPull<E = Broken> = Pull.Pull<Frames, E>

/** Whether a frame has nothing but text, as nearly all frames have. */
export const hasOnlyText = ({ done, logprobs, thinking, toolCalls }: Frame): boolean =>
  !done && thinking === undefined && toolCalls === undefined && logprobs === undefined

/** A text in parts: one string of a large text costs V8 more than its copies. */
export type Parts = ReadonlyArray<string | Buffer>

/** The answer of an embedding model (docs/protocol.md, "Embeddings"). The older endpoint sends no counts. */
export interface Embeddings extends Pick<Counts, "totalDuration" | "loadDuration" | "promptEvalCount"> {
  /** one per input, in the order of the inputs: the JSON of a list of numbers as the model server wrote it, or of base64 */
  readonly vectors: Parts
}
