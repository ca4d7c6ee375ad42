/**
 * Sampling options of both surfaces: which pass, and within which range. A value beyond its range is a 400, because the
 * model server does not check it: it allocates `repeat_last_n` numbers, and dies of a penalty of -1e38.
 */
import { Schema } from "effect"
import type { Json, JsonObject } from "../../domain/Inference.ts"
import { numberIn, type Range, textsIn, wholeIn } from "./bounded.ts"
import { absentable, present } from "./decode.ts"

/** The table in docs/protocol.md, which a test compares with this. */
export const ranges = {
  temperature: [0, 100],
  top_p: [0, 1],
  min_p: [0, 1],
  typical_p: [0, 1],
  /** The largest vocabulary has 262,144 tokens; -1 means all of them. */
  top_k: [-1, 262_144],
  /** The runner allocates so many; -1 means the whole context. */
  repeat_last_n: [-1, 131_072],
  num_keep: [-1, 131_072],
  repeat_penalty: [0.01, 100],
  presence_penalty: [-100, 100],
  frequency_penalty: [-100, 100],
  /** An int64 to the model server; the largest float64 below 2^63. */
  seed: [-(2 ** 63), 2 ** 63 - 1024]
} as const satisfies Record<string, Range>

export const maxStops = 64
export const maxStopLength = 256

export const Stops = textsIn(maxStops, maxStopLength)
export const StopText = Schema.String.check(Schema.isMaxLength(maxStopLength))

/** Every option that passes, under the backend's names. */
export const samplingFields = {
  temperature: absentable(numberIn(ranges.temperature)),
  top_p: absentable(numberIn(ranges.top_p)),
  min_p: absentable(numberIn(ranges.min_p)),
  typical_p: absentable(numberIn(ranges.typical_p)),
  top_k: absentable(wholeIn(ranges.top_k)),
  repeat_last_n: absentable(wholeIn(ranges.repeat_last_n)),
  num_keep: absentable(wholeIn(ranges.num_keep)),
  repeat_penalty: absentable(numberIn(ranges.repeat_penalty)),
  presence_penalty: absentable(numberIn(ranges.presence_penalty)),
  frequency_penalty: absentable(numberIn(ranges.frequency_penalty)),
  /** Clients send fractions and 64 bits; the model server cuts a fraction off. */
  seed: absentable(numberIn(ranges.seed)),
  stop: absentable(Stops)
}

const Sampling = Schema.Struct(samplingFields)

/** Smaller than this is 0: the runner divides by a temperature, and 1e-38 is too small to divide by. */
export const smallest = 1e-6

const forwarded = (value: Json | undefined): Json | undefined =>
  typeof value === "number" && Math.abs(value) < smallest ? 0 : value

/** The options that go upstream, without `num_predict`, which is the pipeline's to set. */
export const samplingOf = (sampling: typeof Sampling.Type): JsonObject => {
  const options: { [key: string]: Json | undefined } = {}
  for (const [key, value] of Object.entries(sampling)) options[key] = forwarded(value)
  if (typeof sampling.seed === "number") options["seed"] = Math.trunc(sampling.seed)
  return present(options)
}
