/**
 * Images. Ollama decodes an image into four bytes a pixel, so the gateway bounds the size in its header: a PNG of 2 kB can
 * be 30,000 pixels wide. It reads format and size, and whether the image is complete, and does not decode it. A file of an
 * unknown format is refused, because Ollama answers it with a 500.
 *
 * For: every Ollama up to 0.24.0. Shown by `real/images.real.ts`.
 */
import { crc32 } from "node:zlib"
import { Result } from "effect"
import { type Decided, refuse } from "../../../domain/Errors.ts"
import type { DecodedRequest, ImageInfo, Json } from "../../../domain/Inference.ts"
import type { Model } from "../../../domain/Model.ts"

const pngSignature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
/** Length, name and checksum around the content of a chunk. */
const chunkFrame = 12
/** Chunks that are read. Writers make one of 8 KiB and more; an empty one costs as much time as a kilobyte. */
const mostChunks = 65_536

/** Whether there are chunks from the header to the end, all with correct checksums. Bytes after the end are not read. */
const isCompletePng = (bytes: Buffer): boolean => {
  let hasPixels = false
  let at = pngSignature.length
  for (let chunks = 0; chunks < mostChunks && at + chunkFrame <= bytes.length; chunks += 1) {
    const end = at + chunkFrame + bytes.readUInt32BE(at)
    if (end > bytes.length) return false
    if (crc32(bytes.subarray(at + 4, end - 4)) !== bytes.readUInt32BE(end - 4)) return false
    const name = bytes.toString("latin1", at + 4, at + 8)
    if (name === "IDAT") hasPixels = true
    if (name === "IEND") return hasPixels
    at = end
  }
  return false
}

/** Width and height are at fixed places of the first chunk. */
const readPng = (bytes: Buffer): ImageInfo | undefined =>
  bytes.length >= 24 && bytes.toString("latin1", 12, 16) === "IHDR"
    ? {
        format: "png",
        width: bytes.readUInt32BE(16),
        height: bytes.readUInt32BE(20),
        complete: isCompletePng(bytes)
      }
    : undefined

/** Whether a marker starts a frame: SOF0 to SOF15, without three markers with other meanings. */
const isFrame = (marker: number): boolean =>
  marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc

const endOfJpeg = Buffer.from([0xff, 0xd9])

/** Reads the frame header before the image data. A second one is refused, as all decoders do. */
const readJpeg = (bytes: Buffer): ImageInfo | undefined => {
  let size: Pick<ImageInfo, "width" | "height"> | undefined
  let at = 2
  while (at + 4 <= bytes.length) {
    if (bytes[at] !== 0xff) return undefined
    const marker = bytes[at + 1] ?? 0
    // A marker may be preceded by any number of fill bytes.
    if (marker === 0xff) {
      at += 1
      continue
    }
    const scans = marker === 0xda
    if (scans) return size && { format: "jpeg", ...size, complete: bytes.includes(endOfJpeg, at) }
    const length = bytes.readUInt16BE(at + 2)
    if (isFrame(marker)) {
      if (at + 9 > bytes.length || size !== undefined) return undefined
      size = { width: bytes.readUInt16BE(at + 7), height: bytes.readUInt16BE(at + 5) }
    }
    at += 2 + length
  }
  return undefined
}

const webp = (width: number, height: number): ImageInfo => ({ format: "webp", width, height, complete: true })

/** A WebP starts with one of three chunks, each with its own form of the size. */
const readWebp = (bytes: Buffer): ImageInfo | undefined => {
  if (bytes.length < 30) return undefined
  switch (bytes.toString("latin1", 12, 16)) {
    case "VP8 ":
      return webp(bytes.readUInt16LE(26) & 0x3fff, bytes.readUInt16LE(28) & 0x3fff)
    case "VP8L": {
      const bits = bytes.readUInt32LE(21)
      return webp((bits & 0x3fff) + 1, ((bits >>> 14) & 0x3fff) + 1)
    }
    case "VP8X":
      return webp(bytes.readUIntLE(24, 3) + 1, bytes.readUIntLE(27, 3) + 1)
    default:
      return undefined
  }
}

/** Newer models take sound in the same field. */
const sound: ImageInfo = { format: "sound", width: 0, height: 0, complete: true }

/** Returns undefined for every file that no model reads. */
export const readImage = (bytes: Buffer): ImageInfo | undefined => {
  if (bytes.subarray(0, 8).equals(pngSignature)) return readPng(bytes)
  if (bytes[0] === 0xff && bytes[1] === 0xd8) return readJpeg(bytes)
  if (bytes.toString("latin1", 0, 4) !== "RIFF") return undefined
  const kind = bytes.toString("latin1", 8, 12)
  return kind === "WEBP" ? readWebp(bytes) : kind === "WAVE" ? sound : undefined
}

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
