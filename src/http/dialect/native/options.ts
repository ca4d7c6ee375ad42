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

/** Any 32-bit number. It is dropped, or rounded to a step of `NUM_CTX_CAP`. */
const NumCtx = wholeIn([-(2 ** 31), 2 ** 31])
const minNumCtx = 4
/** Each other window is another load of the model, so there are few of them. */
const steps = [1 / 4, 1 / 2, 1] as const

const windowIn = (asked: number, cap: number): number =>
  steps.map((step) => Math.max(minNumCtx, Math.ceil(cap * step))).find((window) => window >= asked) ?? cap

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

/** What the client asked for, for `X-Num-Ctx`. */
export const askedNumCtx = ({ num_ctx }: typeof Options.Type): { readonly askedNumCtx?: number } =>
  num_ctx === undefined || num_ctx === null ? {} : { askedNumCtx: num_ctx }

/** The options for the backend. `num_predict` is set at admission. */
export const optionsOf = (options: typeof Options.Type, bounds: Bounds): JsonObject => {
  const forwarded = samplingOf(options)
  const { num_ctx } = options
  return num_ctx === undefined || num_ctx === null || bounds.numCtxCap === undefined
    ? forwarded
    : { ...forwarded, num_ctx: windowIn(num_ctx, bounds.numCtxCap) }
}
