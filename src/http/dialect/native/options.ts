/**
 * `options` of the native surface. Sampling options are forwarded. Options that would reload or pin the model for all
 * clients are dropped and not refused, because common clients always send them. A wrong type is refused, because the model
 * server would answer it with a 500, which counts as its failure.
 */
import { Result, Schema } from "effect"
import type { Bounds } from "../Dialect.ts"
import { absentable, boundMaxTokens, MaxTokens, maxTokensText, wholeIn } from "../fields.ts"
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

/** What a request asks of its model: the options for the backend, and the client's bound on the output. `num_predict` is set at admission. */
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
