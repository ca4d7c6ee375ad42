/** An installed model, without details about the server itself (docs/protocol.md, "Models and descriptions"). */
import type { JsonObject } from "./Inference.ts"

/** The longest name of a model, in characters. A client that asks for a longer one gets a 400. */
export const maxModelName = 256

/** The tokenizer of a model, as its file names it. */
export interface Tokenizer {
  /** `tokenizer.ggml.model`: `gpt2`, `llama`, `bert` … */
  readonly kind: string
  /** `tokenizer.ggml.pre`: how a text is split first, `qwen2`, `llama-bpe` …; "" when the file does not say */
  readonly split: string
}

/** What a model can do. */
export interface Description {
  /** absent when the backend does not send it; then capabilities are not checked */
  readonly capabilities?: ReadonlyArray<string>
  /** the model's limit for the tokens of prompt and answer together */
  readonly contextLength?: number
  readonly tokenizer?: Tokenizer
  /** `num_ctx` of its Modelfile */
  readonly numCtx?: number
}

export interface Model extends Description {
  /** the discovered name, the only one that is sent to the backend */
  readonly name: string
  /** RFC 3339, as the backend wrote it */
  readonly modifiedAt: string
  readonly size: number
  readonly digest: string
  readonly details: JsonObject
}

/** A model under a name that a caller may use: its own, or an alias. */
export interface OfferedModel {
  readonly name: string
  readonly model: Model
  /** the window that an alias asks for */
  readonly numCtx?: number
  /** tokens of prompt and answer together, for a request that asks for no other window; absent: not known */
  readonly window?: number
}

/** Whether the model is known not to think. */
export const cannotThink = (model: Model): boolean =>
  model.capabilities !== undefined && !model.capabilities.includes("thinking")
