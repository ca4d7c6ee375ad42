/**
 * `options` of the native surface (ollama-wire §1.5): sampling passes, whatever would reload or pin the model for
 * everybody is dropped without a word, because common clients send it routinely. Types are checked here: the
 * backend answers a wrong one with a 500 that would count against it.
 */
import { Schema } from "effect"
import type { Bounds } from "../Dialect.ts"
import { absentable, present } from "../decode.ts"

const number = absentable(Schema.Finite)
const integer = absentable(Schema.Int)

export const Options = Schema.Struct({
  temperature: number,
  top_k: integer,
  top_p: number,
  min_p: number,
  typical_p: number,
  repeat_last_n: integer,
  repeat_penalty: number,
  presence_penalty: number,
  frequency_penalty: number,
  seed: integer,
  num_keep: integer,
  num_ctx: integer,
  num_predict: integer,
  stop: absentable(Schema.Array(Schema.String).check(Schema.isMaxLength(64)))
})

/** The options that go upstream; `num_predict` is not among them, it is the pipeline's to set. */
export const samplingOf = (options: typeof Options.Type, bounds: Bounds): Schema.JsonObject => {
  const { num_predict: _bound, num_ctx, ...sampling } = options
  return present({
    ...sampling,
    ...(num_ctx === undefined || num_ctx === null || bounds.numCtxCap === undefined
      ? {}
      : { num_ctx: Math.max(4, Math.min(num_ctx, bounds.numCtxCap)) })
  })
}
