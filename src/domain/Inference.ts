/**
 * One request for the model, whatever surface it came in by: both dialects decode to this, and the backend
 * sends nothing that is not in it.
 */
import type { Schema } from "effect"

export type Json = Schema.Json
export type JsonObject = Schema.JsonObject

/** The backend's own endpoints; the path sent upstream is a constant per kind, never the client's. */
export type InferenceKind = "chat" | "generate" | "embed" | "embeddings"

export interface InferenceRequest {
  readonly kind: InferenceKind
  /** the client's spelling: echoed in every answer, never sent upstream */
  readonly model: string
  /** whether the client wants a stream; upstream is always streamed */
  readonly stream: boolean
  /** the prompt, when the client wants it at the head of the answer */
  readonly echo?: string
  /** fields that passed the schema, without `model`, `stream` and `options` */
  readonly body: JsonObject
  /** sampling options that passed the schema, without `num_predict` */
  readonly options: JsonObject
  /** the client's own bound on output tokens, already checked against `NUM_PREDICT_CAP` */
  readonly maxTokens: number | undefined
  /** UTF-8 bytes of everything the model will read */
  readonly promptBytes: number
  /** estimated prompt tokens, from those bytes */
  readonly promptEstimate: number
}
