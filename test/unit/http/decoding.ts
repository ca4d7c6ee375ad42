/** Decodes a body the way the endpoint does, without a server around it. */
import { Effect, Result } from "effect"
import type { BadRequest } from "../../../src/domain/Errors.ts"
import type { InferenceRequest, Json } from "../../../src/domain/Inference.ts"
import type { Bounds, Decode } from "../../../src/http/Dialect.ts"

export const cap = 4096

export const decoding = (dialect: { readonly decode: Decode }, bounds: Partial<Bounds> = {}) => {
  const decode = (json: Json): Result.Result<InferenceRequest, BadRequest> =>
    Effect.runSync(
      Effect.result(
        dialect.decode(
          { json, bytes: Buffer.byteLength(JSON.stringify(json)) },
          { numPredictCap: cap, numCtxCap: undefined, ...bounds }
        )
      )
    )
  return {
    accepted: (json: Json): InferenceRequest => Result.getOrThrow(decode(json)),
    /** the 400's sentence, or "accepted" */
    refused: (json: Json): string => {
      const decoded = decode(json)
      return Result.isFailure(decoded) ? decoded.failure.detail : "accepted"
    }
  }
}
