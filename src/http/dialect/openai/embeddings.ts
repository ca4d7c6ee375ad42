/** `POST /v1/embeddings` (docs/protocol.md, "OpenAI requests" and "OpenAI answers"). */
import { Schema } from "effect"
import { decide, refuse } from "../../../domain/Errors.ts"
import type { Embeddings, Parts } from "../../../domain/Frame.ts"
import type { DecodedRequest, AnsweredRequest } from "../../../domain/Inference.ts"
import { requestDecoder } from "../Dialect.ts"
import { jsonText, present } from "../../../domain/json.ts"
import { endUserClaim, endUserFields } from "./fields.ts"
import { absentable, isFormed, maxDimensions, maxInputs, ModelName, Texts, wholeIn } from "../fields.ts"

const isInput = Schema.is(Schema.Union([Schema.String, Texts.check(Schema.isMinLength(1))]))

/** Token arrays contain OpenAI's tokens. They have another meaning for other models. */
const notInput = refuse(
  `input: expected a string or an array of 1 to ${maxInputs} strings, not token arrays; LangChain sends text with check_embedding_ctx_length=False`
)

const Encoding = Schema.String.check(
  isFormed(/^(?:[Ff][Ll][Oo][Aa][Tt]|[Bb][Aa][Ss][Ee]64)$/, '"float" or "base64"')
)

const Request = Schema.Struct({
  ...endUserFields,
  model: ModelName,
  input: Schema.Json.annotate({
    description: "a text, or a list of them; token arrays are not supported",
    anyOf: [
      { type: "string" },
      { type: "array", minItems: 1, maxItems: maxInputs, items: { type: "string" } }
    ]
  }),
  dimensions: absentable(wholeIn([1, maxDimensions]), "how long the vectors are"),
  encoding_format: absentable(Encoding, "`float`, or `base64` of little-endian float32")
})

export const embeddingsRequest = requestDecoder(
  Request,
  decide(function* (embeddings: typeof Request.Type) {
    if (!isInput(embeddings.input)) return yield* notInput
    // In a list, an empty string counts as a text.
    const input = typeof embeddings.input === "string" ? [embeddings.input] : embeddings.input
    return {
      kind: "embed",
      model: embeddings.model,
      ...endUserClaim(embeddings),
      stream: false,
      base64: embeddings.encoding_format?.toLowerCase() === "base64",
      body: present({ input, dimensions: embeddings.dimensions }),
      options: {},
      maxTokens: 0
    } satisfies DecodedRequest
  })
)

export const encodeEmbeddings = (
  { model }: AnsweredRequest,
  { promptEvalCount = 0, vectors }: Embeddings
): Parts => {
  const data = vectors.flatMap((vector, index) => [
    `${index === 0 ? "" : ","}{"object":"embedding","index":${index},"embedding":`,
    vector,
    "}"
  ])
  const usage = { prompt_tokens: promptEvalCount, total_tokens: promptEvalCount }
  return [`{"object":"list","data":[`, ...data, `],${jsonText({ model, usage }).slice(1)}`]
}
