/** What is embedded: the bound on how many texts at once, and what they will cost, on either surface. */
import { Schema } from "effect"
import { estimatePrompt } from "./promptSize.ts"

/** Every text becomes a call of its own inside the backend; OpenAI's own bound (ollama-wire §1.6). */
export const maxInputs = 2048

export const Texts = Schema.Array(Schema.String).check(Schema.isMaxLength(maxInputs))

/** Each text is counted by itself: the shortest costs a token. */
export const estimateTexts = (texts: ReadonlyArray<string>): number =>
  Math.max(
    1,
    texts.reduce((sum, text) => sum + estimatePrompt({ texts: [text], messages: 0, images: 0 }), 0)
  )
