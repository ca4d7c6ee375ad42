/** The answer of `POST /v1/embeddings` (docs/protocol.md, "OpenAI answers"). */
import type { Embeddings, Vector } from "../../../domain/Embeddings.ts"
import type { InferenceRequest } from "../../../domain/Inference.ts"

const littleEndian = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1

/** Little-endian float32, whatever this machine is: what OpenAI's clients decode without looking. */
const base64Of = ({ numbers }: Vector): string => {
  const bytes = Buffer.from(new Float32Array(numbers).buffer)
  return (littleEndian ? bytes : bytes.swap32()).toString("base64")
}

export const encodeEmbeddings = (request: InferenceRequest, answer: Embeddings): string => {
  const tokens = answer.promptEvalCount ?? 0
  // Added up, not joined: so much text is copied once, when it leaves.
  const data = answer.vectors.reduce((sum, vector, index) => {
    const embedding = request.base64 === true ? `"${base64Of(vector)}"` : vector.json
    return `${sum}${index === 0 ? "" : ","}{"object":"embedding","index":${index},"embedding":${embedding}}`
  }, "")
  const usage = `{"prompt_tokens":${tokens},"total_tokens":${tokens}}`
  return `{"object":"list","data":[${data}],"model":${JSON.stringify(request.model)},"usage":${usage}}`
}
