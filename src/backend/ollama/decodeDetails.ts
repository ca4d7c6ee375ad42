/** `details` of a model, as in the list and in `/api/show` (docs/protocol.md, "Models and descriptions"). */
import { Schema } from "effect"
import type { JsonObject } from "../../domain/Inference.ts"

const Text = Schema.optional(Schema.NullOr(Schema.String))
const Count = Schema.optional(Schema.NullOr(Schema.Finite))

export const Details = Schema.Struct({
  format: Text,
  family: Text,
  families: Schema.optional(Schema.NullOr(Schema.Array(Schema.String))),
  parameter_size: Text,
  quantization_level: Text,
  context_length: Count,
  embedding_length: Count
})

/** `parent_model` can be a path or a private name, so it is always empty. Clients expect the field. */
export const detailsOf = (details: typeof Details.Type): JsonObject => ({
  parent_model: "",
  format: details.format ?? "",
  family: details.family ?? "",
  families: details.families ?? null,
  parameter_size: details.parameter_size ?? "",
  quantization_level: details.quantization_level ?? "",
  ...(typeof details.context_length === "number" ? { context_length: details.context_length } : {}),
  ...(typeof details.embedding_length === "number" ? { embedding_length: details.embedding_length } : {})
})
