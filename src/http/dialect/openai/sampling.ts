/** Sampling fields of both chat and completions on the OpenAI surface. */
import { Schema } from "effect"
import type { JsonObject } from "../../../domain/Inference.ts"
import { absentable } from "../decode.ts"
import { MaxTokens } from "../bounds.ts"
import { samplingFields, samplingOf, Stops, StopText } from "../sampling.ts"

const Stop = Schema.Union([StopText, Stops])

/** More than one answer cannot be had from the backend, and giving one for two would be a lie. */
export const One = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 1 }, { expected: "1" }))

export const openaiSamplingFields = {
  temperature: samplingFields.temperature,
  top_p: samplingFields.top_p,
  frequency_penalty: samplingFields.frequency_penalty,
  presence_penalty: samplingFields.presence_penalty,
  seed: samplingFields.seed,
  stop: absentable(Stop),
  max_tokens: absentable(MaxTokens),
  n: absentable(One)
}

/** What a client wants to know at the end of a stream. */
export const StreamOptions = Schema.Struct({ include_usage: absentable(Schema.Boolean) })

const Sampling = Schema.Struct(openaiSamplingFields)

export const openaiSamplingOf = (fields: typeof Sampling.Type): JsonObject =>
  samplingOf({
    temperature: fields.temperature ?? null,
    top_p: fields.top_p ?? null,
    frequency_penalty: fields.frequency_penalty ?? null,
    presence_penalty: fields.presence_penalty ?? null,
    seed: fields.seed ?? null,
    stop: typeof fields.stop === "string" ? [fields.stop] : (fields.stop ?? null)
  })
