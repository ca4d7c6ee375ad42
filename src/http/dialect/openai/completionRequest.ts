/** The request of `POST /v1/completions`. The model's own template applies (docs/protocol.md, "OpenAI requests"). */
import { Effect, Schema } from "effect"
import type { DecodedRequest } from "../../../domain/Inference.ts"
import { requestDecoder } from "../Dialect.ts"
import { wholeIn } from "../bounded.ts"
import { absentable, present } from "../decode.ts"
import { checkMaxTokens } from "../bounds.ts"
import { One, openaiSamplingFields, openaiSamplingOf, StreamOptions } from "./sampling.ts"

/** One prompt: the backend answers one at a time, and an empty one would only load the model. */
const Prompt = Schema.Union([Schema.NonEmptyString, Schema.Tuple([Schema.NonEmptyString])])

const Completion = Schema.Struct({
  ...openaiSamplingFields,
  model: Schema.NonEmptyString,
  stream: absentable(Schema.Boolean),
  stream_options: absentable(StreamOptions),
  prompt: Prompt,
  suffix: absentable(Schema.String),
  echo: absentable(Schema.Boolean),
  best_of: absentable(One),
  logprobs: absentable(wholeIn([0, 5]))
})

export const completionRequest = requestDecoder(
  Completion,
  Effect.fnUntraced(function* (completion, bounds) {
    const prompt = typeof completion.prompt === "string" ? completion.prompt : completion.prompt[0]
    const logprobs = completion.logprobs ?? undefined
    return {
      kind: "generate",
      model: completion.model,
      stream: completion.stream ?? false,
      usageChunk: completion.stream_options?.include_usage === true,
      ...(completion.echo === true ? { echo: prompt } : {}),
      body: present({
        prompt,
        suffix: completion.suffix,
        logprobs: logprobs === undefined ? undefined : true,
        top_logprobs: logprobs
      }),
      options: openaiSamplingOf(completion),
      maxTokens: yield* checkMaxTokens("max_tokens", completion.max_tokens, bounds.numPredictCap)
    } satisfies DecodedRequest
  })
)
