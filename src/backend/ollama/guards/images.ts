/**
 * Images. Ollama decodes an image into four bytes a pixel, so the gateway bounds the size in its header: a PNG of 2 kB can
 * be 30,000 pixels wide. A file of an unknown format is refused, because Ollama answers it with a 500.
 *
 * For: every Ollama up to 0.24.0. Shown by `test/real/images.real.ts`.
 */
import { Result } from "effect"
import { type Decided, refuse } from "../../../domain/Errors.ts"
import type { DecodedRequest, ImageInfo, Json } from "../../../domain/Inference.ts"
import type { Model } from "../../../domain/Model.ts"
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

/** What an image must be, in the words of an error. */
export const expectedImage = `a PNG, JPEG or WebP image of 1 to ${maxPixels} pixels, and at most ${maxSide} a side`

export const isImage = (base64: string): boolean => {
  const image = imageOf(base64)
  if (image === undefined) return false
  const { format, height, width } = image
  if (format === "sound") return true
  // A side of 0 ends the runner of a model with a projector.
  return width > 0 && height > 0 && width <= maxSide && height <= maxSide && width * height <= maxPixels
}

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

const hasFamily = ({ details }: Model, matches: (family: string) => boolean): boolean => {
  const { families } = details
  return Array.isArray(families) && families.some((family) => typeof family === "string" && matches(family))
}

/**
 * Returns what is wrong with an image for this model. For a model with a separate projector (llava and similar ones),
 * llama.cpp decodes the images. It reads PNG and JPEG, and the runner of Ollama 0.24 crashes on an image that it cannot
 * decode. The image processor of Qwen's models panics when a side is too small or the sides differ too much.
 */
export const imageProblem = (
  model: Model,
  { complete, format, height, width }: ImageInfo
): string | undefined => {
  if (
    hasFamily(model, (family) => family === "clip") &&
    !(complete && (format === "png" || format === "jpeg"))
  )
    return "expected a whole PNG or JPEG, this model reads no other"
  const [short, long] = [Math.min(width, height), Math.max(width, height)]
  if (hasFamily(model, (family) => /^qwen.*vl/.test(family)) && (short < 32 || long > 200 * short))
    return "expected sides of 32 pixels or more, one at most 200 times the other, for this model"
  return undefined
}
