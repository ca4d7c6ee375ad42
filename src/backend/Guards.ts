/** What the model server must be protected from. `Backend` has the guards of its server, and nothing else knows them. */
import type { Result } from "effect"
import type { JsonObject } from "../domain/Inference.ts"
import type { Tokenizer } from "../domain/Model.ts"

export interface AdmittedSchema {
  readonly schema: JsonObject
  /** keywords that were left out, each once, in alphabetical order */
  readonly relaxed: ReadonlyArray<string>
}

export interface Guards {
  /** The schema of an answer as the server survives it, or a sentence about why there is none. `at`: the client's name of the field. */
  schema(schema: JsonObject, at: string): Result.Result<AdmittedSchema, string>
  /** What is wrong with a body for a model with this tokenizer; undefined: nothing is. */
  problem(body: JsonObject, tokenizer: Tokenizer): string | undefined
}
