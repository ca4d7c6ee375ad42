/**
 * `options` of the native surface. Sampling passes. What would reload or pin the model for everybody is dropped, because
 * common clients send it routinely. Types are checked here: the model server answers a wrong one with a 500, which would
 * count against it.
 */
import { Schema } from "effect"
import type { JsonObject } from "../../../domain/Inference.ts"
import type { Bounds } from "../Dialect.ts"
import { absentable, MaxTokens, maxTokensText, wholeIn } from "../fields.ts"
import { nativeOptions, samplingOf } from "../sampling.ts"

/** A 32-bit number: dropped, or clamped to the operator's bound. */
const NumCtx = wholeIn([-(2 ** 31), 2 ** 31])
const leastNumCtx = 4

export const Options = Schema.Struct({
  ...nativeOptions,
  num_ctx: absentable(NumCtx, "dropped, or clamped to NUM_CTX_CAP where that is set"),
  num_predict: absentable(MaxTokens, maxTokensText)
}).annotate({
  description:
    "Any other option of the model server is dropped, because it would reload or pin the model for everybody."
})

/** The options that go upstream. `num_predict` is not among them: the pipeline sets it. */
export const optionsOf = (options: typeof Options.Type, bounds: Bounds): JsonObject => {
  const forwarded = samplingOf(options)
  const { num_ctx } = options
  return num_ctx === undefined || num_ctx === null || bounds.numCtxCap === undefined
    ? forwarded
    : { ...forwarded, num_ctx: Math.max(leastNumCtx, Math.min(num_ctx, bounds.numCtxCap)) }
}
