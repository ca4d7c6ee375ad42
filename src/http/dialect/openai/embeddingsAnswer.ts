/** The answer of `POST /v1/embeddings` (docs/protocol.md, "OpenAI answers"). */
import type { Embeddings, Vector } from "../../../domain/Embeddings.ts"
import { tryParseJson } from "../../../domain/json.ts"
import type { InferenceRequest, Json } from "../../../domain/Inference.ts"

const littleEndian = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1

/**
 * Bytes of a vector that are parsed at once. A number takes up to eight times its bytes as a value of JavaScript, and a model
 * server may send a vector of 32 MiB.
 */
export const parsedBytes = 65_536
const comma = 0x2c
/** Numbers that are encoded at once. Three numbers have 12 bytes, which are 16 characters without padding. */
const encodedNumbers = 3 * 4096

/** The numbers of `vector`, some thousands at a time. */
const numbersOf = function* ({ json }: Vector): Generator<Json, void> {
  // Without the brackets.
  const end = json.length - 1
  for (let at = 1; at < end;) {
    const near = at + parsedBytes < end ? json.lastIndexOf(comma, at + parsedBytes) : end
    const next = near > at ? near : json.indexOf(comma, at)
    const to = next === -1 ? end : next
    yield tryParseJson(`[${json.toString("latin1", at, to)}]`) ?? []
    at = to + 1
  }
}

/** Base64 of little-endian float32 on every machine, as OpenAI's clients expect it. */
const base64Of = (vector: Vector): ReadonlyArray<Buffer> => {
  const parts: Array<Buffer> = []
  const floats = new Float32Array(Math.min(vector.length, encodedNumbers))
  let count = 0
  const encode = (): void => {
    const bytes = Buffer.from(floats.buffer, 0, 4 * count)
    parts.push(Buffer.from((littleEndian ? bytes : Buffer.from(bytes).swap32()).toString("base64")))
    count = 0
  }
  for (const numbers of numbersOf(vector)) {
    if (!Array.isArray(numbers)) continue
    for (const number of numbers) {
      if (typeof number !== "number") continue
      floats[count] = number
      count += 1
      if (count === encodedNumbers) encode()
    }
  }
  if (count > 0) encode()
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
