/** Reads the format and size of an image, and whether it is complete. It does not decode the image. */
import { crc32 } from "node:zlib"
import type { ImageInfo } from "../../../domain/Inference.ts"

const pngSignature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
/** Length, name and checksum around the content of a chunk. */
const chunkFrame = 12

/** Whether there are chunks from the header to the end, all with correct checksums. Bytes after the end are not read. */
const isCompletePng = (bytes: Buffer): boolean => {
  let hasPixels = false
  let at = pngSignature.length
  while (at + chunkFrame <= bytes.length) {
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
