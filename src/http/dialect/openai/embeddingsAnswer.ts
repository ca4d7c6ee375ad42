/** The answer of `POST /v1/embeddings` (docs/protocol.md, "OpenAI answers"). */
import type { Embeddings, Vector } from "../../../domain/Embeddings.ts"
import { FloatReader } from "../../../domain/FloatReader.ts"
import type { InferenceRequest } from "../../../domain/Inference.ts"

const littleEndian = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1

/** Numbers that are encoded at once. Three numbers have 12 bytes, which are 16 characters without padding. */
const encodedNumbers = 3 * 4096

/** Base64 of little-endian float32 on every machine, as OpenAI's clients expect it. */
const base64Of = (vector: Vector): ReadonlyArray<Buffer> => {
  const parts: Array<Buffer> = []
  const floats = new Float32Array(Math.min(vector.length, encodedNumbers))
  const reader = new FloatReader(vector.json)
  for (let count = reader.readInto(floats); count > 0; count = reader.readInto(floats)) {
    const bytes = Buffer.from(floats.buffer, 0, 4 * count)
    const text = (littleEndian ? bytes : Buffer.from(bytes).swap32()).toString("base64")
    parts.push(Buffer.from(text, "latin1"))
  }
  return parts
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
    ...(request.base64 === true ? base64Of(vector) : [vector.json]),
    `${quote}}`
  ])
  const usage = `{"prompt_tokens":${tokens},"total_tokens":${tokens}}`
  const end = `],"model":${JSON.stringify(request.model)},"usage":${usage}}`
  return [`{"object":"list","data":[`, ...data, end]
}
