/** The answer of `POST /v1/embeddings` (docs/protocol.md, "OpenAI answers"). */
import { endianness } from "node:os"
import { type Embeddings, jsonOf } from "../../../domain/Frame.ts"
import type { InferenceRequest } from "../../../domain/Inference.ts"

/** Base64 of little-endian float32 on every machine, as OpenAI's clients expect it. */
const base64Of = (vector: ReadonlyArray<number>): string => {
  const bytes = Buffer.from(new Float32Array(vector).buffer)
  return (endianness() === "LE" ? bytes : bytes.swap32()).toString("base64")
}

export const encodeEmbeddings = ({ base64, model }: InferenceRequest, answer: Embeddings): string => {
  const { promptEvalCount = 0, vectors } = answer
  const texts = base64 === true ? vectors.map((vector) => JSON.stringify(base64Of(vector))) : jsonOf(answer)
  const data = texts.map((text, index) => `{"object":"embedding","index":${index},"embedding":${text}}`)
  const usage = { prompt_tokens: promptEvalCount, total_tokens: promptEvalCount }
  return `{"object":"list","data":[${data.join(",")}],${JSON.stringify({ model, usage }).slice(1)}`
}
