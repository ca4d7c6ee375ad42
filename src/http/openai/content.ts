/**
 * Message content of the OpenAI surface: a string, or parts of text and images (ollama-wire §3.1). Images come as
 * data URLs only: the gateway fetches nothing on a client's behalf.
 */
import { Schema } from "effect"

const dataUrl = /^data:(?:image\/(?:jpeg|jpg|png|webp))?;base64,([A-Za-z0-9+/]+={0,2})$/

const ImageUrl = Schema.String.check(
  Schema.isPattern(dataUrl, { expected: "a data: URL of a base64 jpeg, png or webp image" })
)

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
  return dataUrl.exec(url)?.[1]
}

const kept = (texts: ReadonlyArray<string | undefined>): ReadonlyArray<string> =>
  texts.filter((text) => text !== undefined)

/** Several text parts make one message, a line each: the backend knows one string. */
export const partsOf = (content: typeof Content.Type | null | undefined): Parts => {
  if (content === undefined || content === null) return { text: "", images: [] }
  if (typeof content === "string") return { text: content, images: [] }
  return { text: kept(content.map(textOf)).join("\n"), images: kept(content.map(imageOf)) }
}
