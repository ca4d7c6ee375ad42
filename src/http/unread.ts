/** The bytes of a large object on their way to the client, in pieces as those of a stream (`AnswerWriter.ts`). */
import { Array as Arr, Cause, Effect, type Pull, Stream } from "effect"
import type { AnswerShare } from "../memory/MemoryLedger.ts"
import { pieceBytes } from "./AnswerWriter.ts"

const encoder = new TextEncoder()
/** the longest character of UTF-8 */
const characterBytes = 4

/**
 * A complete text of `bytes` bytes. It comes in `parts`, because one string of that size costs V8 more than its copies. All of it
 * counts until the client has read it, because V8 keeps the text of a part until then.
 */
export const inPieces = (
  parts: ReadonlyArray<string>,
  bytes: number,
  share: AnswerShare
): Stream.Stream<Buffer> =>
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
          const { read, written } = encoder.encodeInto(rest, memory.subarray(size))
          size += written
          rest = rest.slice(read)
          if (rest === "") rest = parts[++index] ?? ""
        }
        if (size === 0) return Cause.done()
        const piece = memory.subarray(0, size)
        return Effect.succeed(Arr.of(piece))
      })
      share.hold(bytes)
      return Effect.succeed(next)
    })
  )
