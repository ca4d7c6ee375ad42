/** Fields of both chat and completions on the OpenAI surface. */
import { Schema } from "effect"
import { absentable, MaxTokens, maxTokensText, ModelName } from "../fields.ts"
import { openaiOptions } from "../sampling.ts"

/** The model server gives one answer only. */
export const One = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 1 }, { expected: "1" }))

const StreamOptions = Schema.Struct({
  include_usage: absentable(
    Schema.Boolean,
    "usage in a chunk of its own, without choices, at the end of a stream"
  )
})

export const generationFields = {
  ...openaiOptions,
  model: ModelName,
  stream: absentable(Schema.Boolean, "default false"),
  stream_options: absentable(StreamOptions),
  max_tokens: absentable(MaxTokens, maxTokensText),
  n: absentable(One)
}
