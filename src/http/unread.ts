/** The bytes of a large object on their way to the client, in pieces as those of a stream (`AnswerWriter.ts`). */
import { Array as Arr, Cause, Effect, type Pull, Stream } from "effect"
import type { Parts } from "../domain/Frame.ts"
import type { AnswerShare } from "../memory/MemoryLedger.ts"
import { pieceBytes } from "./AnswerWriter.ts"

const encoder = new TextEncoder()
/** the longest character of UTF-8 */
const characterBytes = 4

/** Writes as much of a part as there is room for. */
const write = (part: string | Buffer, room: Buffer) => {
  if (typeof part === "string") return encoder.encodeInto(part, room)
  const bytes = part.copy(room)
  return { read: bytes, written: bytes }
}

/** A complete text of `bytes` bytes. All of it counts until the client has read it, because its parts are kept until then. */
export const inPieces = (parts: Parts, bytes: number, share: AnswerShare): Stream.Stream<Buffer> =>
  Stream.fromPull(
    Effect.suspend(() => {
      // All pieces are in the same memory: the next one is asked for when the kernel has taken this one, because each but the last
      // fills the buffer of the socket. V8 collects its whole heap for every 64 MiB of buffers.
      const memory = Buffer.allocUnsafeSlow(pieceBytes + characterBytes - 1)
      let index = 0
      let rest = parts[0] ?? ""
      const next: Pull.Pull<Arr.NonEmptyReadonlyArray<Buffer>> = Effect.suspend(() => {
        let size = 0
        while (index < parts.length && size < pieceBytes) {
          const { read, written } = write(rest, memory.subarray(size))
          size += written
          rest = typeof rest === "string" ? rest.slice(read) : rest.subarray(read)
          if (rest.length === 0) rest = parts[++index] ?? ""
        }
        return size === 0 ? Cause.done() : Effect.succeed(Arr.of(memory.subarray(0, size)))
      })
      share.hold(bytes)
      return Effect.succeed(next)
    })
  )
