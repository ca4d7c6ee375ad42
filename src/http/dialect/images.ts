/**
 * Images. The model server decodes an image into four bytes a pixel, so the gateway bounds the size in its header: a PNG of 2 kB can
 * be 30,000 pixels wide. It reads no more of an image. A file of an unknown format is refused, because some servers answer it
 * with a 500.
 */
import type { ImageInfo } from "../../domain/Inference.ts"

const pngSignature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
/** Width and height are at fixed places of the first chunk. */
const readPng = (bytes: Buffer): ImageInfo | undefined =>
  bytes.length >= 24 && bytes.toString("latin1", 12, 16) === "IHDR"
    ? { width: bytes.readUInt32BE(16), height: bytes.readUInt32BE(20) }
    : undefined

/** Whether a marker starts a frame: SOF0 to SOF15, without three markers with other meanings. */
const isFrame = (marker: number): boolean =>
  marker >= 0xc0 && marker <= 0xcf && marker !== 0xc4 && marker !== 0xc8 && marker !== 0xcc

/** Reads the frame header before the image data. A second one is refused, as all decoders do. */
const readJpeg = (bytes: Buffer): ImageInfo | undefined => {
  let size: ImageInfo | undefined
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
    if (scans) return size
    const length = bytes.readUInt16BE(at + 2)
    if (isFrame(marker)) {
      if (at + 9 > bytes.length || size !== undefined) return undefined
      size = { width: bytes.readUInt16BE(at + 7), height: bytes.readUInt16BE(at + 5) }
    }
    at += 2 + length
  }
  return undefined
}

/** A WebP starts with one of three chunks, each with its own form of the size. */
const readWebp = (bytes: Buffer): ImageInfo | undefined => {
  if (bytes.length < 30) return undefined
  switch (bytes.toString("latin1", 12, 16)) {
    case "VP8 ":
      return { width: bytes.readUInt16LE(26) & 0x3fff, height: bytes.readUInt16LE(28) & 0x3fff }
    case "VP8L": {
      const bits = bytes.readUInt32LE(21)
      return { width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 }
    }
    case "VP8X":
      return { width: bytes.readUIntLE(24, 3) + 1, height: bytes.readUIntLE(27, 3) + 1 }
    default:
      return undefined
  }
}

/** Newer models take sound in the same field. */
const sound: ImageInfo = { width: 0, height: 0 }

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

/** The size of an image; undefined for a file that no model reads. */
export const imageOf = (base64: string) => readImage(Buffer.from(base64, "base64"))

/** What an image must be, in the words of an error. */
export const expectedImage = `a PNG, JPEG or WebP image of 1 to ${maxPixels} pixels, and at most ${maxSide} a side`

export const isImage = (base64: string): boolean => {
  const image = imageOf(base64)
  if (image === undefined) return false
  if (image === sound) return true
  const { height, width } = image
  return width > 0 && height > 0 && width <= maxSide && height <= maxSide && width * height <= maxPixels
}
