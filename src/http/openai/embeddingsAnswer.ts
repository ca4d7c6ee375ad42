/** `POST /v1/embeddings`, the answer (ollama-wire §3.3). */
import type { Embeddings } from "../../domain/Embeddings.ts"
import type { InferenceRequest, Json } from "../../domain/Inference.ts"

/** Little-endian float32, whatever this machine is: what OpenAI's clients decode without looking. */
const base64Of = (vector: ReadonlyArray<number>): string => {
  const bytes = Buffer.allocUnsafe(vector.length * 4)
  for (const [i, value] of vector.entries()) bytes.writeFloatLE(value, i * 4)
  return bytes.toString("base64")
}

export const encodeEmbeddings = (request: InferenceRequest, answer: Embeddings): Json => {
  const tokens = answer.promptEvalCount ?? 0
  return {
    object: "list",
    data: answer.vectors.map((vector, index) => ({
      object: "embedding",
      index,
      embedding: request.base64 === true ? base64Of(vector) : vector
    })),
    model: request.model,
    usage: { prompt_tokens: tokens, total_tokens: tokens }
  }
}
