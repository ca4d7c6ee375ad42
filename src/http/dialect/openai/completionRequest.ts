/** The request of `POST /v1/completions`. The model's own template applies (docs/protocol.md, "OpenAI requests"). */
import { Schema } from "effect"
import { decide } from "../../../domain/Errors.ts"
import type { DecodedRequest } from "../../../domain/Inference.ts"
import { type Bounds, requestDecoder } from "../Dialect.ts"
import { present } from "../../../domain/json.ts"
import { absentable, boundMaxTokens, wholeIn } from "../fields.ts"
import { samplingOf } from "../sampling.ts"
import { endUserClaim, generationFields, One } from "./fields.ts"

/** Exactly one prompt, because the backend answers one at a time. An empty prompt would only load the model. */
const Prompt = Schema.Union([Schema.NonEmptyString, Schema.Tuple([Schema.NonEmptyString])])

const Completion = Schema.Struct({
  ...generationFields,
  prompt: Prompt,
  suffix: absentable(Schema.String, "what follows the text that is to be filled in"),
  echo: absentable(Schema.Boolean, "whether the answer begins with the prompt"),
  best_of: One,
  logprobs: absentable(wholeIn([0, 5]), "how many alternatives each log probability has")
})

export const completionRequest = requestDecoder(
  Completion,
  decide(function* (completion: typeof Completion.Type, { lowersOutput, numPredictCap }: Bounds) {
    const prompt = typeof completion.prompt === "string" ? completion.prompt : completion.prompt[0]
    const logprobs = completion.logprobs ?? undefined
    return {
      kind: "generate",
      model: completion.model,
      ...endUserClaim(completion),
      stream: completion.stream ?? false,
      usageChunk: completion.stream_options?.include_usage === true,
      ...(completion.echo === true ? { echo: prompt } : {}),
      body: present({
        prompt,
        suffix: completion.suffix,
        logprobs: logprobs === undefined ? undefined : true,
        top_logprobs: logprobs
      }),
      options: samplingOf(completion),
      ...(yield* boundMaxTokens("max_tokens", completion.max_tokens, numPredictCap, lowersOutput))
    } satisfies DecodedRequest
  })
)
