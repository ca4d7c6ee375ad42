/**
 * Images of a request. A model server decodes them whole, four bytes a pixel, so their size is read from their headers and
 * bounded here: a PNG of 2 kB can be 30,000 pixels wide. What is no image the server knows is refused here too, because
 * the server answers that with a 500.
 */
import { Effect, Schema } from "effect"
import { BadRequest } from "../../domain/Errors.ts"
import { isFormed } from "./fields.ts"
import type { DecodedRequest, Json } from "../../domain/Inference.ts"

/** A photograph of 12 megapixels passes. */
export const maxPixels = 4096 * 4096

/** Images of one request, in all of its messages. */
export const maxImages = 32

const pngSignature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])

/** Width and height stand at fixed places of the first chunk. */
const pngPixels = (bytes: Buffer): number | undefined =>
  bytes.length >= 24 && bytes.toString("latin1", 12, 16) === "IHDR"
    ? bytes.readUInt32BE(16) * bytes.readUInt32BE(20)
    : undefined

/** SOF0 to SOF15, without the three markers in between that mean something else. */
const isFrame = (marker: number): boolean =>
  marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc

/** The largest frame of all that are declared before the image itself begins. */
const jpegPixels = (bytes: Buffer): number | undefined => {
  let pixels: number | undefined
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
    if (scans) return pixels
    const length = bytes.readUInt16BE(at + 2)
    if (isFrame(marker)) {
      if (at + 9 > bytes.length) return undefined
      pixels = Math.max(pixels ?? 0, bytes.readUInt16BE(at + 5) * bytes.readUInt16BE(at + 7))
    }
    at += 2 + length
  }
  return pixels
}

/** A WebP starts with one of three chunks, each of which says the size in its own way. */
const webpPixels = (bytes: Buffer): number | undefined => {
  if (bytes.length < 30) return undefined
  switch (bytes.toString("latin1", 12, 16)) {
    case "VP8 ":
      return (bytes.readUInt16LE(26) & 0x3fff) * (bytes.readUInt16LE(28) & 0x3fff)
    case "VP8L": {
      const bits = bytes.readUInt32LE(21)
      return ((bits & 0x3fff) + 1) * (((bits >>> 14) & 0x3fff) + 1)
    }
    case "VP8X":
      return (bytes.readUIntLE(24, 3) + 1) * (bytes.readUIntLE(27, 3) + 1)
    default:
      return undefined
  }
}

/** Pixels as the header of an image declares them; 0 for sound, undefined for anything else. */
export const pixelsOf = (base64: string): number | undefined => {
  const bytes = Buffer.from(base64, "base64")
  if (bytes.subarray(0, 8).equals(pngSignature)) return pngPixels(bytes)
  if (bytes[0] === 0xff && bytes[1] === 0xd8) return jpegPixels(bytes)
  if (bytes.toString("latin1", 0, 4) !== "RIFF") return undefined
  const kind = bytes.toString("latin1", 8, 12)
  // Newer models hear: sound comes in the same field.
  return kind === "WEBP" ? webpPixels(bytes) : kind === "WAVE" ? 0 : undefined
}

const expected = `a PNG, JPEG or WebP image of at most ${maxPixels} pixels`

const isImage = (base64: string): boolean => {
  const pixels = pixelsOf(base64)
  return pixels !== undefined && pixels <= maxPixels
}

/** An image as it goes to the backend: base64, without a `data:` prefix. */
export const Image = Schema.String.check(
  isFormed(
    /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/,
    "base64 without a data: prefix"
  ).abort(),
  Schema.makeFilter(isImage, { expected })
)

export const Images = Schema.Array(Image).check(Schema.isMaxLength(maxImages))

const countIn = (holder: Json | undefined): number =>
  typeof holder === "object" && holder !== null && "images" in holder && Array.isArray(holder.images)
    ? holder.images.length
    : 0

/** The images of a decoded request: those of the prompt, and those of each message. */
const imagesOf = ({ body }: DecodedRequest): number => {
  const { messages } = body
  return Array.isArray(messages)
    ? messages.reduce((sum, message) => sum + countIn(message), 0)
    : countIn(body)
}

export const checkImages = (request: DecodedRequest): Effect.Effect<DecodedRequest, BadRequest> =>
  imagesOf(request) > maxImages
    ? new BadRequest({ detail: `images: expected at most ${maxImages} in one request` })
    : Effect.succeed(request)

const dataUrl = /^data:(?:image\/(?:jpeg|jpg|png|webp))?;base64,([A-Za-z0-9+/]+={0,2})$/

/** The base64 in a data URL of an image. */
export const base64Of = (url: string): string | undefined => dataUrl.exec(url)?.[1]

/** An image as clients of the OpenAI surface send it. */
export const ImageUrl = Schema.String.check(
  isFormed(dataUrl, "a data: URL of a base64 jpeg, png or webp image").abort(),
  Schema.makeFilter((url: string) => isImage(base64Of(url) ?? ""), { expected })
)
