/** The bytes of a large object on their way to the client, in pieces as those of a stream (`AnswerWriter.ts`). */
import { Array as Arr, Cause, Effect, type Pull, Stream } from "effect"
import type { AnswerShare } from "../memory/MemoryLedger.ts"
import { pieceBytes } from "./AnswerWriter.ts"

const encoder = new TextEncoder()
/** the longest character of UTF-8 */
const characterBytes = 4

/** A complete text of `bytes` bytes. It comes in `parts`, because one string of that size costs V8 more than its copies. */
export const inPieces = (
  parts: ReadonlyArray<string>,
  bytes: number,
  share: AnswerShare
): Stream.Stream<Buffer> =>
  Stream.fromPull(
    Effect.suspend(() => {
      // A piece that was taken counts until the next one is asked for: only then its writer has room again.
      let unread = bytes
      let taken = 0
      share.hold(unread)
      // All pieces are in the same memory: the next one is asked for when the kernel has taken this one, because each but the last
      // fills the buffer of the socket. V8 collects its whole heap for every 64 MiB of buffers.
      const memory = Buffer.allocUnsafeSlow(pieceBytes + characterBytes - 1)
      let index = 0
      let rest = parts[0] ?? ""
      const next: Pull.Pull<Arr.NonEmptyReadonlyArray<Buffer>> = Effect.suspend(() => {
        let size = 0
        while (index < parts.length && size < pieceBytes) {
          const { read, written } = encoder.encodeInto(rest, memory.subarray(size))
          size += written
          rest = rest.slice(read)
          if (rest === "") rest = parts[++index] ?? ""
        }
        if (size === 0) return Cause.done()
        const piece = memory.subarray(0, size)
        unread -= taken
        taken = size
        share.hold(unread)
        return Effect.succeed(Arr.of(piece))
      })
      return Effect.succeed(next)
    })
  )
