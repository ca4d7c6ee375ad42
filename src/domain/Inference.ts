/**
 * One request about a model. Both surfaces decode to it, and the backend gets nothing else.
 */
import type { Schema } from "effect"
import type { CallText } from "./CallText.ts"
import type { Scope } from "./Caller.ts"

export type Json = Schema.Json
export type JsonObject = Schema.JsonObject

/**
 * The endpoints of the backend, and `count`, which the gateway answers itself. The path that is called is a constant for each
 * kind, never the client's.
 */
export type InferenceKind = "chat" | "generate" | "embed" | "embeddings" | "show" | "count"

/** What a key needs for a request of a kind. Discovery checks it; the route table shows it. */
export const scopeFor = {
  chat: "chat",
  generate: "chat",
  embed: "embeddings",
  embeddings: "embeddings",
  /** any key, because every key may read the descriptions of its models */
  show: "key",
  /** the tokens of a chat are counted for those who may chat; the gateway answers, not the backend */
  count: "chat"
} as const satisfies { readonly [K in InferenceKind]: Scope | "key" }

/** The size of an image by its header, in pixels; 0 for sound. */
export interface ImageInfo {
  readonly width: number
  readonly height: number
}

/** What is kept of a request while it runs, beside the text of its call. */
export interface RequestFacts {
  readonly kind: InferenceKind
  /** as the client wrote it; echoed in every answer, never sent to the backend */
  readonly model: string
  /** whether the client gets a stream; the backend always streams chat and generate */
  readonly stream: boolean
  /** the prompt, when the client wants it at the start of the answer */
  readonly echo?: string
  /** whether the client wants its usage in a chunk of its own */
  readonly usageChunk?: boolean
  /** whether the client wants its vectors as base64 of float32 instead of numbers */
  readonly base64?: boolean
  /** whether `think` is left out for a model that is known not to think; otherwise that is a 400 */
  readonly thinkIfAble?: boolean
  /** the digest of the model that the `context` in the body belongs to */
  readonly contextDigest?: string
  /** keywords that were left out of the schema, for `X-Schema-Relaxed` */
  readonly relaxed?: ReadonlyArray<string>
  /** the images, in order */
  readonly images?: ReadonlyArray<ImageInfo>
  /** the `num_ctx` that the client asked for, whether or not it is sent */
  readonly askedNumCtx?: number
  /** for whom the request is, as it claims; never sent upstream */
  readonly endUser?: string
  /** what its answer repeats of the client's request, as the text of a JSON object; never sent to the backend */
  readonly echoed?: Buffer
  /** the bound that replaces a higher one of the client, for `X-Max-Tokens` */
  readonly loweredTo?: number
  /** the client's own bound on output tokens, already checked against `NUM_PREDICT_CAP`; 0: nothing is generated */
  readonly maxTokens: number | undefined
}

/** A decoded body. */
export interface DecodedRequest extends RequestFacts {
  /** fields that passed the schema, without `model`, `stream` and `options` */
  readonly body: JsonObject
  /** sampling options that passed the schema, without `num_predict` */
  readonly options: JsonObject
  /** the client's `context`, still sealed; it becomes part of `body` when it is opened */
  readonly sealedContext?: ReadonlyArray<number>
}

/** The size of a prompt (`http/dialect/promptEstimate.ts`). Later changes of a request may only remove fields. */
export interface PromptSize {
  /** UTF-8 bytes that are forwarded, without images */
  readonly promptBytes: number
  /** estimated prompt tokens, from these bytes and the images; 0 when the model does not run */
  readonly promptEstimate: number
  /** the answer to a request that only counts: the estimate, as if the model ran */
  readonly counted?: number
}

/** What an answer is made for. */
export interface AnsweredRequest extends RequestFacts, PromptSize {}

/** A request whose model is not resolved yet. */
export interface InferenceRequest extends DecodedRequest, PromptSize {}

/**
 * A request that waits or runs. Nothing of the objects that the client sent is left (`prepare.ts`): they take up to 22 times the
 * memory of their text.
 */
export interface PreparedRequest extends AnsweredRequest {
  /** the body */
  readonly text: CallText
  /** `think` of the body, which depends on the model; undefined: it is not sent */
  readonly think: Json | undefined
  readonly options: JsonObject
  /** whether the request asks for a schema or for JSON */
  readonly hasFormat: boolean
  /** whether a field or an option, `think` left aside, makes a backend collect its output */
  readonly collects: boolean
  /** texts to embed; 0: the model is only loaded */
  readonly inputs: number
  /** log probabilities for each token */
  readonly logprobs: number
  readonly prompt: PromptFacts
}

/** What is known of a prompt without its text. Of several inputs it is that of the longest. */
export interface PromptFacts {
  /** never more than it has */
  readonly leastTokens: number
  readonly estimate: number
  /** characters, as far as every template writes them */
  readonly characters: number
}

/** How the output of a request is held and metered (`outputPlan.ts`). */
export interface OutputPlan {
  /** number of runs the backend may make for this request, each of up to `num_predict` tokens */
  readonly runs: number
  /** whether the gateway may see nothing of the output while it is generated */
  readonly unseen: boolean
  /** whether the request makes the backend collect its output; if so, `unseen` */
  readonly collects: boolean
}

/** The call that is sent to the backend. Only a `Permit` has one. */
export interface ModelCall {
  readonly request: PreparedRequest
  /** maximal output tokens of one run; always sent to a model that generates */
  readonly numPredict: number
  /** the number of runs, and how much of the output is held at admission */
  readonly plan: OutputPlan
}
