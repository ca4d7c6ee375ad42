/**
 * `options` of the native surface. Sampling options are forwarded. Options that would reload or pin the model for all
 * clients are dropped and not refused, because common clients always send them. A wrong type is refused, because the model
 * server would answer it with a 500, which counts as its failure.
 */
import { Schema } from "effect"
import type { JsonObject } from "../../../domain/Inference.ts"
import type { Bounds } from "../Dialect.ts"
import { absentable, MaxTokens, maxTokensText, wholeIn } from "../fields.ts"
import { nativeOptions, samplingOf } from "../sampling.ts"

/** Any 32-bit number. It is dropped, or limited to `NUM_CTX_CAP`. */
const NumCtx = wholeIn([-(2 ** 31), 2 ** 31])
const minNumCtx = 4

export const Options = Schema.Struct({
  ...nativeOptions,
  num_ctx: absentable(NumCtx, "dropped, or clamped to NUM_CTX_CAP where that is set"),
  num_predict: absentable(MaxTokens, maxTokensText)
}).annotate({
  description:
    "Any other option of the model server is dropped, because it would reload or pin the model for all clients."
})

/** What the client asked for, for `X-Num-Ctx`. */
export const askedNumCtx = ({ num_ctx }: typeof Options.Type): { readonly askedNumCtx?: number } =>
  num_ctx === undefined || num_ctx === null ? {} : { askedNumCtx: num_ctx }

/** The options for the backend. `num_predict` is set at admission. */
export const optionsOf = (options: typeof Options.Type, bounds: Bounds): JsonObject => {
  const forwarded = samplingOf(options)
  const { num_ctx } = options
  return num_ctx === undefined || num_ctx === null || bounds.numCtxCap === undefined
    ? forwarded
    : { ...forwarded, num_ctx: Math.max(minNumCtx, Math.min(num_ctx, bounds.numCtxCap)) }
}
