/**
 * Checks the images of a request. The model server decodes an image into four bytes a pixel, so the gateway bounds the size
 * in its header: a PNG of 2 kB can be 30,000 pixels wide. A file of an unknown format is refused, because the server
 * answers it with a 500.
 */
import { Result, Schema } from "effect"
import { type Decided, refuse } from "../../domain/Errors.ts"
import { isFormed } from "./fields.ts"
import type { DecodedRequest, Json } from "../../domain/Inference.ts"
import { readImage } from "./imageFormat.ts"

/** Enough for a photograph of 12 megapixels. */
export const maxPixels = 4096 * 4096

/**
 * Maximal pixels of one side. Some models extend an image to a square, and their runner crashes on one of 1 by
 * 60,000.
 */
export const maxSide = 8192

/** Images of one request, in all of its messages. */
export const maxImages = 32

const imageOf = (base64: string) => readImage(Buffer.from(base64, "base64"))

/** The pixels in the header of an image; 0 for sound, undefined for every other file. */
export const pixelsOf = (base64: string): number | undefined => {
  const image = imageOf(base64)
  return image && image.width * image.height
}

const expected = `a PNG, JPEG or WebP image of at most ${maxPixels} pixels, and ${maxSide} a side`

const isImage = (base64: string): boolean => {
  const image = imageOf(base64)
  if (image === undefined) return false
  const { height, width } = image
  return width <= maxSide && height <= maxSide && width * height <= maxPixels
}

/** An image in the form of the backend: base64 without a `data:` prefix. */
export const Image = Schema.String.check(
  isFormed(
    /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/,
    "base64 without a data: prefix"
  ).abort(),
  Schema.makeFilter(isImage, { expected })
)

export const Images = Schema.Array(Image).check(Schema.isMaxLength(maxImages))

const imagesIn = (holder: Json | undefined): ReadonlyArray<Json> =>
  typeof holder === "object" && holder !== null && "images" in holder && Array.isArray(holder.images)
    ? holder.images
    : []

/** The images of a decoded request: those of the prompt, and those of each message. */
const imagesOf = ({ body }: DecodedRequest): ReadonlyArray<Json> => {
  const { messages } = body
  return Array.isArray(messages) ? messages.flatMap(imagesIn) : imagesIn(body)
}

/**
 * Tags of images in the texts of a request, as the model server's own templates write them. The server puts an image of
 * hundreds of tokens at each: 37,000 tags fit in a body of 256 KiB.
 */
const tagsIn = (value: Json): number => {
  if (typeof value === "string") return value.split(/\[img-\d+\]/).length - 1
  if (typeof value !== "object" || value === null) return 0
  return Object.values(value).reduce<number>((sum, item) => sum + tagsIn(item), 0)
}

export const checkImages = (request: DecodedRequest): Decided<DecodedRequest> => {
  const images = imagesOf(request)
  if (images.length === 0) return Result.succeed(request)
  if (images.length > maxImages) return refuse(`images: expected at most ${maxImages} in one request`)
  if (tagsIn(request.body) > maxImages)
    return refuse(`images: expected at most ${maxImages} tags like [img-0] in the texts`)
  const readable = images.flatMap((image) => (typeof image === "string" ? (imageOf(image) ?? []) : []))
  return Result.succeed({ ...request, images: readable })
}

const dataUrl = /^data:(?:image\/(?:jpeg|jpg|png|webp))?;base64,([A-Za-z0-9+/]+={0,2})$/

/** The base64 in a data URL of an image. */
export const base64Of = (url: string): string | undefined => dataUrl.exec(url)?.[1]

/** An image as clients of the OpenAI surface send it. */
export const ImageUrl = Schema.String.check(
  isFormed(dataUrl, "a data: URL of a base64 jpeg, png or webp image").abort(),
  Schema.makeFilter((url: string) => isImage(base64Of(url) ?? ""), { expected })
)
