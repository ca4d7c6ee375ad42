/**
 * The sampling options, one row each, with range and description. From its row an option is decoded, bounded, forwarded
 * under its name, and described in `openapi.json` and docs/protocol.md (`npm run openapi`). On `/api` an option is a field
 * of `options`, on `/v1` a field of the request. The model server does not check them:
 * it allocates `repeat_last_n` numbers, and a runner has ended on a penalty of -1e38 (`real/survival.real.ts`).
 */
import { Schema } from "effect"
import type { Json, JsonObject } from "../../domain/Inference.ts"
import { present } from "../../domain/json.ts"
import { absentable, numberIn, textsIn, wholeIn } from "./fields.ts"

/** The least and the most of an option, both inclusive. */
const ranges = {
  temperature: [0, 100],
  share: [0, 1],
  penalty: [-100, 100],
  repeatPenalty: [0.01, 100],
  topK: [-1, 262_144],
  tokens: [-1, 131_072],
  /** The largest float64 below 2^63. */
  seed: [-(2 ** 63), 2 ** 63 - 1024]
} as const

/** Smaller values become 0. The runner divides by a temperature, and 1e-38 is too small for that. */
export const smallest = 1e-6

export const maxStops = 64
export const maxStopLength = 256

const Stops = textsIn(maxStops, maxStopLength)
const StopText = Schema.String.check(Schema.isMaxLength(maxStopLength))

/** Options of both surfaces. */
const common = {
  temperature: absentable(
    numberIn(ranges.temperature),
    "how random the answer is; 0 always takes the most likely token"
  ),
  top_p: absentable(
    numberIn(ranges.share),
    "tokens outside of the most likely ones that add up to this probability are left out"
  ),
  presence_penalty: absentable(
    numberIn(ranges.penalty),
    "makes tokens that the text already has less likely"
  ),
  frequency_penalty: absentable(
    numberIn(ranges.penalty),
    "makes tokens less likely the more often the text has them"
  ),
  seed: absentable(
    numberIn(ranges.seed),
    "the same seed gives the same answer; an int64, a fraction is cut off"
  )
}

/** Every option of the native surface. */
export const nativeOptions = {
  ...common,
  min_p: absentable(
    numberIn(ranges.share),
    "tokens less likely than this share of the most likely one are left out"
  ),
  typical_p: absentable(numberIn(ranges.share), "as `top_p`, in the order of how typical a token is"),
  top_k: absentable(
    wholeIn(ranges.topK),
    "how many of the most likely tokens are considered; -1 is all of them"
  ),
  repeat_last_n: absentable(
    wholeIn(ranges.tokens),
    "how many tokens back `repeat_penalty` looks; the runner allocates as many; -1 is the whole context"
  ),
  num_keep: absentable(
    wholeIn(ranges.tokens),
    "how many tokens of the prompt stay when the context is full; -1 is all of them"
  ),
  repeat_penalty: absentable(
    numberIn(ranges.repeatPenalty),
    "makes repeated tokens less likely; the runner divides by it, 1 changes nothing"
  ),
  stop: absentable(Stops, "texts that end the answer")
}

/** Every option of the OpenAI surface. */
export const openaiOptions = {
  ...common,
  stop: absentable(Schema.Union([StopText, Stops]), "a text that ends the answer, or several")
}

const names = Object.keys({ ...nativeOptions, ...openaiOptions })

const forwarded = (name: string, value: Json): Json => {
  if (typeof value === "number")
    return Math.abs(value) < smallest ? 0 : name === "seed" ? Math.trunc(value) : value
  return name === "stop" && typeof value === "string" ? [value] : value
}

/** The options of a decoded request for the model server. `num_predict` is set at admission. */
export const samplingOf = (fields: { readonly [key: string]: Json | undefined }): JsonObject => {
  const options: { [key: string]: Json } = { ...present(fields, names) }
  for (const [name, value] of Object.entries(options)) options[name] = forwarded(name, value)
  return options
}
