/** `POST /api/show`, the request (ollama-wire §2.2): the name, under either of its names, and nothing else. */
import { Effect, Schema } from "effect"
import { BadRequest } from "../../domain/Errors.ts"
import type { InferenceRequest } from "../../domain/Inference.ts"
import type { Decode } from "../Dialect.ts"
import { absentable, decodeWith } from "../decode.ts"

const Show = Schema.Struct({
  model: absentable(Schema.String),
  /** what older clients send */
  name: absentable(Schema.String)
})

const decode = decodeWith(Show)

export const decodeShow: Decode = Effect.fnUntraced(function* (body) {
  const show = yield* decode(body.json)
  const model = show.model || show.name || ""
  if (model === "") return yield* new BadRequest({ detail: "model: missing" })
  return {
    kind: "show",
    model,
    stream: false,
    body: {},
    options: {},
    maxTokens: 0,
    promptBytes: 0,
    promptEstimate: 0
  } satisfies InferenceRequest
})
