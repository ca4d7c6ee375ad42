/**
 * Message content of the OpenAI surface: a string, or parts of text and images. Images are `data:` URLs only, because the
 * gateway fetches nothing for a client.
 */
import { Schema } from "effect"
import { base64Of, ImageUrl } from "../fields.ts"

const Part = Schema.Union([
  Schema.Struct({ type: Schema.Literal("text"), text: Schema.String }),
  Schema.Struct({ type: Schema.Literal("refusal"), refusal: Schema.String }),
  Schema.Struct({
    type: Schema.Literal("image_url"),
    image_url: Schema.Union([ImageUrl, Schema.Struct({ url: ImageUrl })])
  })
])

export const Content = Schema.Union([Schema.String, Schema.Array(Part)])

export interface Parts {
  readonly text: string
  /** bare base64 */
  readonly images: ReadonlyArray<string>
}

const textOf = (part: typeof Part.Type): string | undefined => {
  switch (part.type) {
    case "text":
      return part.text
    case "refusal":
      return part.refusal
    case "image_url":
      return undefined
  }
}

const imageOf = (part: typeof Part.Type): string | undefined => {
  if (part.type !== "image_url") return undefined
  const url = typeof part.image_url === "string" ? part.image_url : part.image_url.url
  return base64Of(url)
}

const defined = (texts: ReadonlyArray<string | undefined>): ReadonlyArray<string> =>
  texts.filter((text) => text !== undefined)

/** The backend takes one string. Ollama makes a message of each part, and joins those of one role with an empty line. */
export const partsOf = (content: typeof Content.Type | null | undefined): Parts => {
  if (content === undefined || content === null) return { text: "", images: [] }
  if (typeof content === "string") return { text: content, images: [] }
  return { text: defined(content.map(textOf)).join("\n\n"), images: defined(content.map(imageOf)) }
}
