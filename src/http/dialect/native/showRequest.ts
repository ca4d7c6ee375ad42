/** The request of `POST /api/show`: only the name, in `model` or `name`. */
import { Result, Schema } from "effect"
import { type Decided, refuse } from "../../../domain/Errors.ts"
import type { DecodedRequest } from "../../../domain/Inference.ts"
import { requestDecoder } from "../Dialect.ts"
import { absentable, OptionalModelName } from "../fields.ts"

const Show = Schema.Struct({
  model: absentable(OptionalModelName, "a name from /api/tags; `:latest` may be left out"),
  name: absentable(OptionalModelName, "as older clients send it, instead of `model`")
}).annotate({
  not: { properties: { model: { enum: ["", null] }, name: { enum: ["", null] } } }
})

export const showRequest = requestDecoder(Show, (show: typeof Show.Type): Decided<DecodedRequest> => {
  const model = show.model || show.name || ""
  return model === ""
    ? refuse("model: missing")
    : Result.succeed({ kind: "show", model, stream: false, body: {}, options: {}, maxTokens: 0 })
})
