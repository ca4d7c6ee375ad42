/** The request of `POST /api/generate` (docs/protocol.md, "Generate"). */
import { Effect, Schema } from "effect"
import { BadRequest } from "../../../domain/Errors.ts"
import type { DecodedRequest } from "../../../domain/Inference.ts"
import { wholeIn } from "../bounded.ts"
import { requestDecoder } from "../Dialect.ts"
import { absentable, present } from "../decode.ts"
import { Images } from "../images.ts"
import { checkMaxTokens } from "../bounds.ts"
import { Format, Think, TopLogprobs } from "./fields.ts"
import { maxContextNumber, maxContextNumbers } from "./sealedContext.ts"
import { Options, optionsOf } from "./options.ts"

const SealedContext = Schema.Array(wholeIn([0, maxContextNumber])).check(
  Schema.isMaxLength(maxContextNumbers)
)

const Generate = Schema.Struct({
  model: Schema.NonEmptyString,
  stream: absentable(Schema.Boolean),
  prompt: absentable(Schema.String),
  suffix: absentable(Schema.String),
  images: absentable(Images),
  format: absentable(Format),
  system: absentable(Schema.String),
  template: absentable(Schema.String),
  raw: absentable(Schema.Boolean),
  context: absentable(SealedContext),
  think: absentable(Think),
  truncate: absentable(Schema.Boolean),
  logprobs: absentable(Schema.Boolean),
  top_logprobs: absentable(TopLogprobs),
  options: absentable(Options)
})

export const generateRequest = requestDecoder(
  Generate,
  Effect.fnUntraced(function* (generate, bounds) {
    // A template can print the model's system prompt, and to ignore one would change the answer unseen.
    if (generate.template !== undefined && generate.template !== null && generate.template !== "") {
      return yield* new BadRequest({ detail: "template: not supported" })
    }
    const options = generate.options ?? {}
    const context = generate.context ?? []
    const raw = generate.raw === true
    if (raw && ((generate.system ?? "") !== "" || context.length > 0)) {
      return yield* new BadRequest({ detail: "raw: expected without system and context" })
    }
    return {
      kind: "generate",
      model: generate.model,
      // Without a prompt Ollama only loads the model, and answers one object also when `stream` is true.
      stream: (generate.prompt ?? "") !== "" && (generate.stream ?? true),
      ...(context.length === 0 ? {} : { sealedContext: context }),
      body: present({
        prompt: generate.prompt ?? "",
        suffix: generate.suffix,
        images: generate.images,
        format: generate.format === "" ? undefined : generate.format,
        system: generate.system,
        raw: generate.raw,
        think: generate.think,
        truncate: generate.truncate,
        logprobs: generate.logprobs,
        top_logprobs: generate.top_logprobs
      }),
      options: optionsOf(options, bounds),
      maxTokens: yield* checkMaxTokens("options.num_predict", options.num_predict, bounds.numPredictCap)
    } satisfies DecodedRequest
  })
)
