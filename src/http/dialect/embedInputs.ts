/** What is embedded: the bound on how many texts at once, on either surface. */
import { Schema } from "effect"

/** Each text becomes a call of its own inside the backend. The bound is the one of OpenAI. */
export const maxInputs = 2048

/** No model makes vectors so long; the backend cuts them to this. */
export const maxDimensions = 65_536

export const Texts = Schema.Array(Schema.String).check(Schema.isMaxLength(maxInputs))
