/** Images that say how large they are, whole but for their pixels. */
import { crc32, deflateSync } from "node:zlib"

const chunk = (name: string, content: Buffer): Buffer => {
  const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)]
  const named = Buffer.concat([Buffer.from(name, "latin1"), content])
  length.writeUInt32BE(content.length)
  sum.writeUInt32BE(crc32(named))
  return Buffer.concat([length, named, sum])
}

/** `rows`: filtered lines of pixels, eight bits of grey each. */
const pngOf = (width: number, height: number, rows: Buffer): Buffer => {
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width)
  header.writeUInt32BE(height, 4)
  header.writeUInt8(8, 8)
  const bytes = Buffer.concat([
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    chunk("IHDR", header),
    chunk("IDAT", deflateSync(rows)),
    chunk("IEND", Buffer.alloc(0))
  ])
  // A multiple of three bytes: tests put more base64 after it.
  return Buffer.concat([bytes, Buffer.alloc((3 - (bytes.length % 3)) % 3)])
}

const png = (width: number, height: number): Buffer => pngOf(width, height, Buffer.alloc(0))

/** A PNG that a decoder accepts: all of it black. */
export const decodablePng = (width: number, height: number): string =>
  pngOf(width, height, Buffer.alloc((width + 1) * height)).toString("base64")

const jpeg = (width: number, height: number): Buffer => {
  const frame = Buffer.from([0xff, 0xc2, 0, 11, 8, 0, 0, 0, 0, 1, 1, 0x11, 0])
  frame.writeUInt16BE(height, 5)
  frame.writeUInt16BE(width, 7)
  // A segment of metadata, a fill byte, the frame, the start of the scan, the end.
  return Buffer.concat([
    Buffer.from([0xff, 0xd8, 0xff, 0xe1, 0, 6, 1, 2, 3, 4, 0xff]),
    frame,
    Buffer.from([0xff, 0xda, 0, 2, 0xff, 0xd9])
  ])
}

const webp = (kind: string, write: (chunk: Buffer) => void): Buffer => {
  const bytes = Buffer.alloc(32)
  bytes.write("RIFF", 0, "latin1")
  bytes.write("WEBP", 8, "latin1")
  bytes.write(kind, 12, "latin1")
  write(bytes)
  return bytes
}

/** An image of each kind, as base64. */
export const pictures = {
  png: (width: number, height: number) => png(width, height).toString("base64"),
  jpeg: (width: number, height: number) => jpeg(width, height).toString("base64"),
  "webp, lossy": (width: number, height: number) =>
    webp("VP8 ", (chunk) => {
      chunk.writeUInt16LE(width, 26)
      chunk.writeUInt16LE(height, 28)
    }).toString("base64"),
  "webp, lossless": (width: number, height: number) =>
    webp("VP8L", (chunk) => {
      chunk.writeUInt32LE((((height - 1) << 14) | (width - 1)) >>> 0, 21)
    }).toString("base64"),
  "webp, extended": (width: number, height: number) =>
    webp("VP8X", (chunk) => {
      chunk.writeUIntLE(width - 1, 24, 3)
      chunk.writeUIntLE(height - 1, 27, 3)
    }).toString("base64")
} as const

/** Any picture at all. */
export const picture = pictures.png(1, 1)
