/** The requests of `POST /api/embed` and of the older `/api/embeddings` (docs/protocol.md, "Embeddings"). */
import { Effect, Schema } from "effect"
import type { DecodedRequest } from "../../../domain/Inference.ts"
import { requestDecoder } from "../Dialect.ts"
import { wholeIn } from "../bounded.ts"
import { absentable, present } from "../decode.ts"
import { maxDimensions, Texts } from "../embedInputs.ts"
import { checkMaxTokens } from "../bounds.ts"
import { Options, optionsOf } from "./options.ts"

const Embed = Schema.Struct({
  model: Schema.NonEmptyString,
  input: absentable(Schema.Union([Schema.String, Texts])),
  truncate: absentable(Schema.Boolean),
  dimensions: absentable(wholeIn([-(2 ** 31), maxDimensions])),
  options: absentable(Options)
})

/** Nothing is generated, but a bound above the cap is refused wherever it is sent. */
const checkOptions = (options: typeof Options.Type, cap: number) =>
  checkMaxTokens("options.num_predict", options.num_predict, cap)

export const embedRequest = requestDecoder(
  Embed,
  Effect.fnUntraced(function* (embed, bounds) {
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
      maxTokens: 0
    } satisfies DecodedRequest
  })
)

const Embeddings = Schema.Struct({
  model: Schema.NonEmptyString,
  prompt: absentable(Schema.String),
  options: absentable(Options)
})

export const embeddingsRequest = requestDecoder(
  Embeddings,
  Effect.fnUntraced(function* (embeddings, bounds) {
    const options = embeddings.options ?? {}
    yield* checkOptions(options, bounds.numPredictCap)
    const prompt = embeddings.prompt ?? ""
    return {
      kind: "embeddings",
      model: embeddings.model,
      stream: false,
      body: { prompt },
      options: optionsOf(options, bounds),
      maxTokens: 0
    } satisfies DecodedRequest
  })
)
