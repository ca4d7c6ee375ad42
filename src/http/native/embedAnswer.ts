/** `POST /api/embed` and the legacy `/api/embeddings`, the answer (ollama-wire §1.6, §1.7). */
import type { Embeddings } from "../../domain/Embeddings.ts"
import type { InferenceRequest, Json } from "../../domain/Inference.ts"
import { present } from "../decode.ts"

export const encodeEmbed = (request: InferenceRequest, answer: Embeddings): Json => ({
  model: request.model,
  embeddings: answer.vectors,
  ...present({
    total_duration: answer.totalDuration,
    load_duration: answer.loadDuration,
    prompt_eval_count: answer.promptEvalCount
  })
})

export const encodeEmbeddings = (_request: InferenceRequest, answer: Embeddings): Json => ({
  embedding: answer.vectors[0] ?? []
})
