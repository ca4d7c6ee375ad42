/** Fields that chat and generate of the native surface have in common. */
import { Schema } from "effect"
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import { present } from "../../../domain/json.ts"
import { absentable, ModelName, TopLogprobs } from "../fields.ts"
import { Options } from "./options.ts"

const Format = Schema.Union([Schema.Literals(["json", ""]), Schema.JsonObject])

const Think = Schema.Union([Schema.Boolean, Schema.Literals(["low", "medium", "high", "max"])])

/** Fields that are forwarded under the same name. */
const forwarded = {
  format: absentable(Format, "`json`, or a JSON schema that the answer has to follow"),
  think: absentable(Think, "whether, or how hard, the model reasons before it answers"),
  truncate: absentable(
    Schema.Boolean,
    "whether a prompt that is too long is cut; the default is the model server's"
  ),
  logprobs: absentable(Schema.Boolean, "whether the answer has log probabilities"),
  top_logprobs: absentable(TopLogprobs, "how many alternatives each of them has")
}

export const generationFields = {
  model: ModelName,
  stream: absentable(Schema.Boolean, "default true"),
  ...forwarded,
  options: absentable(Options)
}

const names = Object.keys(forwarded)

/** The forwarded part of the common fields. */
export const forwardedOf = (request: { readonly [key: string]: Json | undefined }): JsonObject =>
  present(request.format === "" ? { ...request, format: null } : request, names)
