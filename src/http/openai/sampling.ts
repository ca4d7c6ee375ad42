/** Sampling fields shared by chat and completions of the OpenAI surface (ollama-wire §3.1, §3.2). */
import { Schema } from "effect"
import { absentable, present } from "../decode.ts"

export const Stop = Schema.Union([Schema.String, Schema.Array(Schema.String).check(Schema.isMaxLength(64))])

/** More than one answer cannot be had from the backend, and giving one for two would be a lie. */
export const One = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 1 }, { expected: "1" }))

export const samplingFields = {
  temperature: absentable(Schema.Finite),
  top_p: absentable(Schema.Finite),
  frequency_penalty: absentable(Schema.Finite),
  presence_penalty: absentable(Schema.Finite),
  seed: absentable(Schema.Int),
  stop: absentable(Stop),
  max_tokens: absentable(Schema.Int),
  n: absentable(One)
}

const Sampling = Schema.Struct(samplingFields)

export const samplingOf = (fields: typeof Sampling.Type): Schema.JsonObject =>
  present({
    temperature: fields.temperature,
    top_p: fields.top_p,
    frequency_penalty: fields.frequency_penalty,
    presence_penalty: fields.presence_penalty,
    seed: fields.seed,
    stop: typeof fields.stop === "string" ? [fields.stop] : fields.stop
  })
