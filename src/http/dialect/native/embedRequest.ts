/** The requests of `POST /api/embed` and of the older `/api/embeddings` (docs/protocol.md, "Embeddings"). */
import { Result, Schema } from "effect"
import type { DecodedRequest } from "../../../domain/Inference.ts"
import { type Bounds, requestDecoder } from "../Dialect.ts"
import { present } from "../decode.ts"
import { absentable, checkMaxTokens, maxDimensions, ModelName, Texts, wholeIn } from "../fields.ts"
import { askedNumCtx, Options, optionsOf } from "./options.ts"

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

/** Refuses a bound above the cap, although nothing is generated. */
const checkOptions = (options: typeof Options.Type, cap: number) =>
  checkMaxTokens("options.num_predict", options.num_predict, cap)

export const embedRequest = requestDecoder(Embed, (embed: typeof Embed.Type, bounds: Bounds) =>
  Result.gen(function* () {
    const options = embed.options ?? {}
    yield* checkOptions(options, bounds.numPredictCap)
    const input = embed.input ?? ""
    const dimensions = embed.dimensions ?? 0
    return {
      kind: "embed",
      model: embed.model,
      stream: false,
      body: present({
        input,
        truncate: embed.truncate,
        dimensions: dimensions > 0 ? dimensions : undefined
      }),
      options: optionsOf(options, bounds),
      ...askedNumCtx(options),
      maxTokens: 0
    } satisfies DecodedRequest
  })
)

const Embeddings = Schema.Struct({
  model: ModelName,
  prompt: absentable(Schema.String),
  options: absentable(Options)
})

export const embeddingsRequest = requestDecoder(
  Embeddings,
  (embeddings: typeof Embeddings.Type, bounds: Bounds) =>
    Result.gen(function* () {
      const options = embeddings.options ?? {}
      yield* checkOptions(options, bounds.numPredictCap)
      const prompt = embeddings.prompt ?? ""
      return {
        kind: "embeddings",
        model: embeddings.model,
        stream: false,
        body: { prompt },
        options: optionsOf(options, bounds),
        ...askedNumCtx(options),
        maxTokens: 0
      } satisfies DecodedRequest
    })
)
