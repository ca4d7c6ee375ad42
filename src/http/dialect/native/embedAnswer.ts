/** The answers of `POST /api/embed` and of the older `/api/embeddings` (docs/protocol.md, "Embeddings"). */
import { type Embeddings, jsonOf } from "../../../domain/Frame.ts"
import type { InferenceRequest } from "../../../domain/Inference.ts"
import { present } from "../decode.ts"

export const encodeEmbed = ({ model }: InferenceRequest, answer: Embeddings): string => {
  const counts = present({
    total_duration: answer.totalDuration,
    load_duration: answer.loadDuration,
    prompt_eval_count: answer.promptEvalCount
  })
  const [head, rest] = [JSON.stringify({ model }), JSON.stringify(counts)]
  const embeddings = `"embeddings":[${jsonOf(answer).join(",")}]`
  return `${head.slice(0, -1)},${embeddings}${rest === "{}" ? "}" : `,${rest.slice(1)}`}`
}

export const encodeEmbeddings = (_request: InferenceRequest, answer: Embeddings): string =>
  `{"embedding":${jsonOf(answer)[0] ?? "[]"}}`
