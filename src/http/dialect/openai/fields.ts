/** Fields of both chat and completions on the OpenAI surface. */
import { Schema } from "effect"
import { endUserOf } from "../../../domain/EndUser.ts"
import { absentable, AnyObject, MaxTokens, maxTokensText, ModelName } from "../fields.ts"
import { openaiOptions } from "../sampling.ts"
import { unsupported } from "../types.ts"

/** The model server gives one answer only. */
export const One = unsupported("expected 1; send a request for each answer", Schema.Literal(1))

export const LogitBias = unsupported(
  "its tokens are those of OpenAI's models; leave it out",
  AnyObject.check(Schema.isMaxProperties(0))
)

const StreamOptions = Schema.Struct({
  include_usage: absentable(
    Schema.Boolean,
    "usage in a chunk of its own, without choices, at the end of a stream"
  )
})

/** The fields in which OpenAI's clients name their user. They are stored in the audit and not sent upstream. */
export const endUserFields = {
  user: absentable(
    Schema.String,
    "for whom the request is; stored in the audit, at most 128 characters of it"
  ),
  safety_identifier: absentable(Schema.String, "wins over `user`")
}

interface Claims {
  readonly user?: string | null
  readonly safety_identifier?: string | null
}

/** For whom the request is, as a part of the decoded request. A blank text is none. */
export const endUserClaim = ({ safety_identifier, user }: Claims): { readonly endUser?: string } => {
  const endUser = endUserOf(safety_identifier) ?? endUserOf(user)
  return endUser === undefined ? {} : { endUser }
}

export const generationFields = {
  ...endUserFields,
  ...openaiOptions,
  model: ModelName,
  stream: absentable(Schema.Boolean, "default false"),
  stream_options: absentable(StreamOptions),
  max_tokens: absentable(MaxTokens, maxTokensText),
  n: One,
  logit_bias: LogitBias
}
