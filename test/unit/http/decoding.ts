/** Decodes a body the way the endpoint does, without a server around it. */
import { guards } from "../../../src/backend/ollama/guards/guards.ts"
import { Result } from "effect"
import type { BadRequest } from "../../../src/domain/Errors.ts"
import type { InferenceRequest, Json } from "../../../src/domain/Inference.ts"
import type { Bounds, Decode } from "../../../src/http/dialect/Dialect.ts"
import { withPromptSize } from "../../../src/http/dialect/promptEstimate.ts"

export const cap = 65_536

export const decoding = (dialect: { readonly decode: Decode }, bounds: Partial<Bounds> = {}) => {
  const decoded = (json: Json): Result.Result<InferenceRequest, BadRequest> =>
    Result.map(
      dialect.decode(
        { json, bytes: Buffer.byteLength(JSON.stringify(json)) },
        { numPredictCap: cap, lowersOutput: false, numCtxCap: undefined, toolsMax: 128, ...bounds },
        guards
      ),
      withPromptSize
    )
  return {
    decoded,
    accepted: (json: Json): InferenceRequest => Result.getOrThrow(decoded(json)),
    /** the 400's sentence, or "accepted" */
    refused: (json: Json): string => {
      const result = decoded(json)
      return Result.isFailure(result) ? result.failure.detail : "accepted"
    }
  }
}
