/** A model the backend has installed, as discovery keeps it (ollama-wire §2.1), backend detail left out. */
import type { JsonObject } from "./Inference.ts"

export interface Model {
  /** the discovered spelling, the only one ever sent upstream */
  readonly name: string
  /** RFC 3339, as the backend wrote it */
  readonly modifiedAt: string
  readonly size: number
  readonly digest: string
  readonly details: JsonObject
  /** absent from old backends: then nothing is known, and nothing is refused on it */
  readonly capabilities?: ReadonlyArray<string>
}
