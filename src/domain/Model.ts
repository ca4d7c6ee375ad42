/** An installed model, without details about the server itself (docs/protocol.md, "Models and descriptions"). */
import type { JsonObject } from "./Inference.ts"

/** How a model makes tokens of a text, in the words of its file. */
export interface Tokenizer {
  /** `tokenizer.ggml.model`: `gpt2`, `llama`, `bert` … */
  readonly kind: string
  /** `tokenizer.ggml.pre`: into which pieces a text is split before, `qwen2`, `llama-bpe` …; "" where the file has none */
  readonly split: string
}

/** What a model can do. */
export interface Description {
  /** absent when the backend does not send it; then no request is refused for it */
  readonly capabilities?: ReadonlyArray<string>
  /** the model's limit for the tokens of prompt and answer together */
  readonly contextLength?: number
  readonly tokenizer?: Tokenizer
}

export interface Model extends Description {
  /** the discovered spelling, the only one that is sent to the backend */
  readonly name: string
  /** RFC 3339, as the backend wrote it */
  readonly modifiedAt: string
  readonly size: number
  readonly digest: string
  readonly details: JsonObject
}
