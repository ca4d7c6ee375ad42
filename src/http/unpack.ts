/**
 * Unpacks a compressed body, within the bounds of one that is not. The work is done in Node's thread pool, in pieces, for one body at a
 * time, tenants in turn: few bytes can be much work, and a decoder may take 8 MiB beside its body.
 */
import { constants, createGunzip, createInflate, createZstdDecompress } from "node:zlib"
import { Effect } from "effect"
import { BadRequest, PayloadTooLarge } from "../domain/Errors.ts"
import { freeLarge } from "../infra/freeBuffer.ts"
import { GrowingBuffer } from "../infra/GrowingBuffer.ts"
import type { BodyShare } from "../memory/MemoryLedger.ts"
import { makeTurns } from "./turns.ts"
import type { BodyRefused } from "./server/ReceivedBody.ts"

/** What a decoder must be able to look back on (RFC 8878, section 3.1.1.1.2), as a power of two. Without it, a body names its own. */
const zstdWindow = 23

/** The codings that are taken, one at a time (RFC 9110, section 8.4.1). */
const decoders = {
  gzip: createGunzip,
  "x-gzip": createGunzip,
  deflate: createInflate,
  zstd: () => createZstdDecompress({ params: { [constants.ZSTD_d_windowLogMax]: zstdWindow } })
} as const

export type Coding = keyof typeof decoders

export const isCoding = (name: string): name is Coding => Object.hasOwn(decoders, name)

/** Takes memory for what is unpacked, beside the packed bytes, before it is kept. Ends the decoder when it is left. */
const unpacked = (
  coding: Coding,
  bytes: Buffer,
  limitBytes: number,
  share: BodyShare
): Effect.Effect<Buffer, BodyRefused> =>
  Effect.callback((resume) => {
    const decoder = decoders[coding]()
    const body = new GrowingBuffer(limitBytes)
    const refuse = (why: BodyRefused) => {
      decoder.destroy()
      resume(Effect.fail(why))
    }
    const malformed = () =>
      refuse(new BadRequest({ detail: `body: expected ${coding}, whole and with nothing behind it` }))
    decoder.on("data", (piece: Buffer) => {
      // Node may have another piece ready.
      if (decoder.destroyed) return
      if (body.size + piece.length > limitBytes) return refuse(new PayloadTooLarge({ limitBytes }))
      const problem = share.grow(bytes.length + body.memoryWith(piece.length))
      if (problem === undefined) body.push(piece)
      else refuse(problem)
    })
    decoder.once("error", malformed)
    decoder.once("end", () => {
      // What is behind the end would be lost.
      if (decoder.bytesWritten < bytes.length) return malformed()
      // Before the end a thread may still read them.
      freeLarge(bytes)
      resume(Effect.succeed(body.exact()))
    })
    decoder.end(bytes)
    return Effect.sync(() => decoder.destroy())
  })

export const makeUnpack = Effect.map(
  makeTurns("unpack"),
  (inTurn) =>
    /** The unpacked body, whose memory is in `share`. The packed bytes are freed. */
    (tenantId: string, coding: Coding, bytes: Buffer, limitBytes: number, share: BodyShare) =>
      inTurn(tenantId, unpacked(coding, bytes, limitBytes, share))
)
