/** The answer of `POST /v1/embeddings` (docs/protocol.md, "OpenAI answers"). */
import type { Embeddings } from "../../../domain/Embeddings.ts"
import type { InferenceRequest } from "../../../domain/Inference.ts"

/** Base64 of little-endian float32 on every machine, as OpenAI's clients expect it. */
const base64Of = (vector: ReadonlyArray<number>): string => {
  const bytes = Buffer.allocUnsafe(4 * vector.length)
  vector.forEach((number, index) => bytes.writeFloatLE(number, 4 * index))
  return bytes.toString("base64")
}

export const encodeEmbeddings = (
  { base64, model }: InferenceRequest,
  { promptEvalCount = 0, vectors }: Embeddings
): string =>
  JSON.stringify({
    object: "list",
    data: vectors.map((vector, index) => ({
      object: "embedding",
      index,
      embedding: base64 === true ? base64Of(vector) : vector
    })),
    model,
    usage: { prompt_tokens: promptEvalCount, total_tokens: promptEvalCount }
  })
