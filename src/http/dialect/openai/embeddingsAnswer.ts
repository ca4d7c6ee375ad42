/** The answer of `POST /v1/embeddings` (docs/protocol.md, "OpenAI answers"). */
import { type Embeddings, numbersOf, type Vector } from "../../../domain/Embeddings.ts"
import type { InferenceRequest } from "../../../domain/Inference.ts"

const littleEndian = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1

/** Little-endian float32 on every machine, as OpenAI's clients expect it. */
const base64Of = (vector: Vector): Buffer => {
  const bytes = Buffer.from(new Float32Array(numbersOf(vector)).buffer)
  return Buffer.from((littleEndian ? bytes : bytes.swap32()).toString("base64"))
}

/** Vectors as numbers are the bytes that the backend sent. They are not copied. */
export const encodeEmbeddings = (
  request: InferenceRequest,
  answer: Embeddings
): ReadonlyArray<string | Buffer> => {
  const tokens = answer.promptEvalCount ?? 0
  const quote = request.base64 === true ? '"' : ""
  const data = answer.vectors.flatMap((vector, index) => [
    `${index === 0 ? "" : ","}{"object":"embedding","index":${index},"embedding":${quote}`,
    request.base64 === true ? base64Of(vector) : vector.json,
    `${quote}}`
  ])
  const usage = `{"prompt_tokens":${tokens},"total_tokens":${tokens}}`
  const end = `],"model":${JSON.stringify(request.model)},"usage":${usage}}`
  return [`{"object":"list","data":[`, ...data, end]
}
