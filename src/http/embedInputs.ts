/** What is embedded: the bound on how many texts at once, on either surface. */
import { Schema } from "effect"

/** Every text becomes a call of its own inside the backend; OpenAI's own bound (ollama-wire §1.6). */
export const maxInputs = 2048

export const Texts = Schema.Array(Schema.String).check(Schema.isMaxLength(maxInputs))
