/** The request of `POST /api/generate` (docs/protocol.md, "Generate"). */
import { Result, Schema } from "effect"
import { refuse } from "../../../domain/Errors.ts"
import type { DecodedRequest } from "../../../domain/Inference.ts"
import { type Bounds, requestDecoder } from "../Dialect.ts"
import { present } from "../../../domain/json.ts"
import { absentable, Images, wholeIn } from "../fields.ts"
import { unsupported } from "../types.ts"
import { forwardedOf, generationFields, optionsOf } from "./fields.ts"
import { maxContextNumber, maxContextNumbers } from "./sealedContext.ts"

const SealedContext = Schema.Array(wholeIn([0, maxContextNumber])).check(
  Schema.isMaxLength(maxContextNumbers)
)

const noPicture = "no picture is made here; leave it out"

const Generate = Schema.Struct({
  ...generationFields,
  prompt: absentable(Schema.String, "without one, the model is only loaded"),
  suffix: absentable(Schema.String, "what follows the text that is to be filled in"),
  images: absentable(Images),
  system: absentable(Schema.String, "instead of the model's own system prompt"),
  // A template can print the model's system prompt. If it were dropped, the client would not notice the other answer.
  template: unsupported("not supported; send the whole prompt with `raw`", Schema.Literal("")),
  width: unsupported(noPicture, Schema.Literal(0)),
  height: unsupported(noPicture, Schema.Literal(0)),
  steps: unsupported(noPicture, Schema.Literal(0)),
  raw: absentable(Schema.Boolean, "without the model's template; not together with `system` or `context`"),
  context: absentable(SealedContext, "as an earlier answer to this key gave it")
})

export const generateRequest = requestDecoder(Generate, (generate: typeof Generate.Type, bounds: Bounds) => {
  const context = generate.context ?? []
  if (generate.raw === true && ((generate.system ?? "") !== "" || context.length > 0))
    return refuse("raw: expected without system and context")
  const prompt = generate.prompt ?? ""
  return Result.map(optionsOf(generate, bounds), (asked): DecodedRequest => ({
    ...asked,
    kind: "generate",
    // Without a prompt Ollama only loads the model, and answers one object also when `stream` is true.
    stream: prompt !== "" && (generate.stream ?? true),
    ...(context.length === 0 ? {} : { sealedContext: context }),
    body: {
      ...present({
        prompt,
        suffix: generate.suffix,
        images: generate.images,
        system: generate.system,
        raw: generate.raw
      }),
      ...forwardedOf(generate)
    }
  }))
})
