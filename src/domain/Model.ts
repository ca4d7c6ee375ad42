/** An installed model, without details about the server itself (docs/protocol.md, "Models and descriptions"). */
import type { JsonObject } from "./Inference.ts"

/** What a model can do. */
export interface Description {
  /** absent where the backend does not tell: then nothing is known, and nothing is refused on it */
  readonly capabilities?: ReadonlyArray<string>
  /** tokens of prompt and answer together that the model was made for */
  readonly contextLength?: number
}

export interface Model extends Description {
  /** the discovered spelling, the only one ever sent upstream */
  readonly name: string
  /** RFC 3339, as the backend wrote it */
  readonly modifiedAt: string
  readonly size: number
  readonly digest: string
  readonly details: JsonObject
}
