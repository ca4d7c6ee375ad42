/** Fields that requests of the native surface have in common, and their `options`. */
import { Result, Schema } from "effect"
import type { Json, JsonObject } from "../../../domain/Inference.ts"
import { present } from "../../../domain/json.ts"
import type { Bounds } from "../Dialect.ts"
import {
  absentable,
  AnyObject,
  boundMaxTokens,
  MaxTokens,
  maxTokensText,
  ModelName,
  TopLogprobs,
  wholeIn
} from "../fields.ts"
import { nativeOptions, samplingOf } from "../sampling.ts"

/** Any 32-bit number. It is dropped, or rounded to a step of `NUM_CTX_CAP`. */
const NumCtx = wholeIn([-(2 ** 31), 2 ** 31])
const minNumCtx = 4
/** Each other window is another load of the model, so there are few of them. */
const steps = [1 / 4, 1 / 2, 1] as const

const windowIn = (asked: number, cap: number): number =>
  steps.map((step) => Math.max(minNumCtx, Math.ceil(cap * step))).find((window) => window >= asked) ?? cap

/**
 * Sampling options are forwarded. Options that would reload or pin the model for all clients are dropped and not refused, because
 * common clients always send them. A wrong type is refused, because the model server would answer it with a 500, which counts as
 * its failure.
 */
export const Options = Schema.Struct({
  ...nativeOptions,
  num_ctx: absentable(
    NumCtx,
    "dropped, or rounded up to a quarter, a half or all of NUM_CTX_CAP where that is set"
  ),
  num_predict: absentable(MaxTokens, maxTokensText)
}).annotate({
  description:
    "Any other option of the model server is dropped, because it would reload or pin the model for all clients."
})

/**
 * What a request asks of its model: the options for the backend, and the client's bound on the output. `num_predict` is set at
 * admission.
 */
export const optionsOf = (
  request: { readonly model: string; readonly options?: typeof Options.Type | null },
  { numCtxCap, numPredictCap }: Bounds
) => {
  const given = request.options ?? {}
  const { num_ctx: window, num_predict: most } = given
  const options = samplingOf(given)
  return Result.map(boundMaxTokens("options.num_predict", most, numPredictCap), ({ maxTokens }) => ({
    model: request.model,
    maxTokens,
    ...(window === undefined || window === null
      ? { options }
      : {
          askedNumCtx: window,
          options: numCtxCap === undefined ? options : { ...options, num_ctx: windowIn(window, numCtxCap) }
        })
  }))
}

const Format = Schema.Union([Schema.Literals(["json", ""]), AnyObject])

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
