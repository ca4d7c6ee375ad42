/**
 * `options` of the native surface. Sampling options pass. Options that would reload or pin the model for everybody are
 * dropped silently, because common clients send them. Types are checked here, because the backend answers a wrong type with
 * a 500, which counts as a failure of the backend (docs/protocol.md, "Chat").
 */
import { Schema } from "effect"
import type { JsonObject } from "../../../domain/Inference.ts"
import { wholeIn } from "../bounded.ts"
import type { Bounds } from "../Dialect.ts"
import { absentable } from "../decode.ts"
import { MaxTokens } from "../bounds.ts"
import { samplingFields, samplingOf } from "../sampling.ts"

/** A 32-bit number: dropped, or clamped to the operator's bound. */
const NumCtx = wholeIn([-(2 ** 31), 2 ** 31])
const leastNumCtx = 4

export const Options = Schema.Struct({
  ...samplingFields,
  num_ctx: absentable(NumCtx),
  num_predict: absentable(MaxTokens)
})

/** The options that go upstream; `num_predict` is not among them, it is the pipeline's to set. */
export const optionsOf = (options: typeof Options.Type, bounds: Bounds): JsonObject => {
  const { num_ctx, num_predict: _bound, ...sampling } = options
  const kept = samplingOf(sampling)
  return num_ctx === undefined || num_ctx === null || bounds.numCtxCap === undefined
    ? kept
    : { ...kept, num_ctx: Math.max(leastNumCtx, Math.min(num_ctx, bounds.numCtxCap)) }
}
