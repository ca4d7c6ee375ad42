/** The answers of `POST /api/embed` and of the older `/api/embeddings` (docs/protocol.md, "Embeddings"). */
import type { Embeddings } from "../../../domain/Embeddings.ts"
import type { InferenceRequest } from "../../../domain/Inference.ts"
import { present } from "../decode.ts"

/** The vectors are the bytes that the backend sent. They are not copied. */
export const encodeEmbed = (
  request: InferenceRequest,
  answer: Embeddings
): ReadonlyArray<string | Buffer> => {
  const list = answer.list ?? [
    "[",
    ...answer.vectors.flatMap(({ json }, i) => (i === 0 ? [json] : [",", json])),
    "]"
  ]
  const counts = present({
    total_duration: answer.totalDuration,
    load_duration: answer.loadDuration,
    prompt_eval_count: answer.promptEvalCount
  })
  const rest = Object.keys(counts).length === 0 ? "}" : `,${JSON.stringify(counts).slice(1)}`
  return [`{"model":${JSON.stringify(request.model)},"embeddings":`, ...list, rest]
}

export const encodeEmbeddings = (
  _request: InferenceRequest,
  answer: Embeddings
): ReadonlyArray<string | Buffer> => [`{"embedding":`, answer.vectors[0]?.json ?? "[]", "}"]
