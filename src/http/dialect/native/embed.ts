/** `POST /api/embed` and the older `/api/embeddings` (docs/protocol.md, "Embeddings"). */
import { Array as Arr, Result, Schema } from "effect"
import { type Embeddings, namedCounts, type Parts } from "../../../domain/Frame.ts"
import type { DecodedRequest, AnsweredRequest, JsonObject } from "../../../domain/Inference.ts"
import { type Bounds, requestDecoder } from "../Dialect.ts"
import { jsonText, present } from "../../../domain/json.ts"
import { absentable, maxDimensions, ModelName, Texts, wholeIn } from "../fields.ts"
import { Options, optionsOf } from "./fields.ts"

const Embed = Schema.Struct({
  model: ModelName,
  input: absentable(Schema.Union([Schema.String, Texts]), "without any, the model is only loaded"),
  truncate: absentable(
    Schema.Boolean,
    "whether a text that is too long is cut; the default is the model server's"
  ),
  dimensions: absentable(
    wholeIn([-(2 ** 31), maxDimensions]),
    "how long the vectors are; 0 or less is the model's own"
  ),
  options: absentable(Options)
})

const LegacyEmbed = Schema.Struct({
  model: ModelName,
  prompt: absentable(Schema.String),
  options: absentable(Options)
})

/** A bound above the cap is refused, although nothing is generated. */
const embedding =
  <A extends Parameters<typeof optionsOf>[0]>(
    kind: "embed" | "embeddings",
    bodyOf: (request: A) => JsonObject
  ) =>
  (request: A, bounds: Bounds) =>
    Result.map(optionsOf(request, bounds), (asked): DecodedRequest => ({
      ...asked,
      kind,
      stream: false,
      body: bodyOf(request),
      maxTokens: 0
    }))

export const embedRequest = requestDecoder(
  Embed,
  embedding("embed", ({ dimensions, input, truncate }: typeof Embed.Type) =>
    present({
      input: input ?? "",
      truncate,
      dimensions: (dimensions ?? 0) > 0 ? dimensions : undefined
    })
  )
)

export const embeddingsRequest = requestDecoder(
  LegacyEmbed,
  embedding("embeddings", ({ prompt }: typeof LegacyEmbed.Type) => ({ prompt: prompt ?? "" }))
)

export const encodeEmbed = ({ model }: AnsweredRequest, answer: Embeddings): Parts => {
  const counts = jsonText(present(namedCounts(answer)))
  return [
    `{"model":${jsonText(model)},"embeddings":[`,
    ...Arr.intersperse(answer.vectors, ","),
    counts === "{}" ? "]}" : `],${counts.slice(1)}`
  ]
}

export const encodeEmbeddings = (_request: AnsweredRequest, { vectors }: Embeddings): Parts => [
  `{"embedding":`,
  ...vectors,
  "}"
]
