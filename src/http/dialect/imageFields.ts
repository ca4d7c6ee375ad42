/** The fields of a request that have an image. What an image must be is in `backend/ollama/guards/images.ts`. */
import { Schema } from "effect"
import { expectedImage as expected, isImage, maxImages } from "../../backend/ollama/guards/images.ts"
import { isFormed } from "./fields.ts"

const base64 = "base64 without a data: prefix"

/** An image in the form of the backend. The pattern repeats no group: a group in an image of some megabytes overflows V8's stack. */
export const Image = Schema.String.check(
  isFormed(/^[A-Za-z0-9+/]*={0,2}$/, base64).abort(),
  Schema.makeFilter((text: string) => text.length % 4 === 0, { expected: base64 }).abort(),
  Schema.makeFilter(isImage, { expected })
)

export const Images = Schema.Array(Image).check(Schema.isMaxLength(maxImages))

const dataUrl = /^data:(?:image\/(?:jpeg|jpg|png|webp))?;base64,([A-Za-z0-9+/]+={0,2})$/

/** The base64 in a data URL of an image. */
export const base64Of = (url: string): string | undefined => dataUrl.exec(url)?.[1]

/** An image as clients of the OpenAI surface send it. */
export const ImageUrl = Schema.String.check(
  isFormed(dataUrl, "a data: URL of a base64 jpeg, png or webp image").abort(),
  Schema.makeFilter((url: string) => isImage(base64Of(url) ?? ""), { expected })
)
