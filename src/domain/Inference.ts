/**
 * One request about a model, whatever surface it came in by: both dialects decode to this, and the backend
 * is sent nothing that is not in it.
 */
import type { Schema } from "effect"

export type Json = Schema.Json
export type JsonObject = Schema.JsonObject

/** The backend's own endpoints; the path sent upstream is a constant per kind, never the client's. */
export type InferenceKind = "chat" | "generate" | "embed" | "embeddings" | "show"

/** What a surface's decoder makes of a body. */
export interface DecodedRequest {
  readonly kind: InferenceKind
  /** the client's spelling: echoed in every answer, never sent upstream */
  readonly model: string
  /** whether the client gets a stream; chat and generate are always streamed upstream */
  readonly stream: boolean
  /** the prompt, when the client wants it at the head of the answer */
  readonly echo?: string
  /** whether the client wants its usage in a chunk of its own */
  readonly usageChunk?: boolean
  /** whether the client wants its vectors as base64 of float32 instead of numbers */
  readonly base64?: boolean
  /** fields that passed the schema, without `model`, `stream` and `options` */
  readonly body: JsonObject
  /** sampling options that passed the schema, without `num_predict` */
  readonly options: JsonObject
  /** `body.think` is a wish: left out for a model that is known not to think, which is otherwise a 400 */
  readonly thinkIfAble?: boolean
  /** what the client sent as `context`, unread: it is not part of `body` before it was opened */
  readonly sealedContext?: ReadonlyArray<number>
  /** the digest of the model that `body.context` belongs to */
  readonly contextDigest?: string
  /** keywords that were left out of its schema, for the client to know */
  readonly relaxed?: ReadonlyArray<string>
  /** the client's own bound on output tokens, already checked against `NUM_PREDICT_CAP`; 0: nothing is generated */
  readonly maxTokens: number | undefined
}

/** A request whose prompt has been measured (`http/promptSize.ts`). Whatever changes it afterwards may only take away. */
export interface InferenceRequest extends DecodedRequest {
  /** UTF-8 bytes that are forwarded, images aside */
  readonly promptBytes: number
  /** estimated prompt tokens, from those bytes and the images; 0 when the model is not run */
  readonly promptEstimate: number
}
