/** The answers of `POST /api/embed` and of the older `/api/embeddings` (docs/protocol.md, "Embeddings"). */
import type { Embeddings } from "../../../domain/Embeddings.ts"
import type { InferenceRequest } from "../../../domain/Inference.ts"
import { present } from "../decode.ts"

export const encodeEmbed = ({ model }: InferenceRequest, answer: Embeddings): string =>
  JSON.stringify({
    model,
    embeddings: answer.vectors,
    ...present({
      total_duration: answer.totalDuration,
      load_duration: answer.loadDuration,
      prompt_eval_count: answer.promptEvalCount
    })
  })

export const encodeEmbeddings = (_request: InferenceRequest, { vectors }: Embeddings): string =>
  JSON.stringify({ embedding: vectors[0] ?? [] })
