/**
 * The bytes of an answer on their way to the client. What waits for the client counts as unread memory (`MemoryLedger.ts`), and
 * goes out in pieces, so that the bytes that the kernel took show whether a client reads, however large the answer is.
 */
import { Array as Arr, Cause, Duration, Effect, type Pull, Queue, Schedule, Stream } from "effect"
import type { AnswerShare } from "../memory/MemoryLedger.ts"
import type { GatewayError, Unavailable } from "../domain/Errors.ts"
import type { Frame, Parts } from "../domain/Frame.ts"
import type { StreamReply } from "./Reply.ts"

/** How often a client hears that the model server has not begun. */
const sayingEvery = Duration.seconds(10)

/** Bytes of one write. A client that takes fewer in `CLIENT_STALL_TIMEOUT_MS` does not read. */
export const pieceBytes = 65_536

const piecesOf = (bytes: Buffer): Arr.NonEmptyReadonlyArray<Buffer> => {
  const rest: Array<Buffer> = []
  for (let at = pieceBytes; at < bytes.length; at += pieceBytes)
    rest.push(bytes.subarray(at, at + pieceBytes))
  return [bytes.subarray(0, pieceBytes), ...rest]
}

/**
 * Counts what waits, and what the encoder keeps. A piece that was taken counts until the next one is asked for: only then its writer has
 * room again.
 */
const makeCount = (share: AnswerShare, kept: () => number = () => 0) => {
  let unread = 0
  let taken = 0
  return {
    add: (bytes: number): Effect.Effect<void> => {
      unread += bytes
      return share.hold(unread + kept())
    },
    take: (piece: Buffer): Effect.Effect<void> => {
      unread -= taken
      taken = piece.length
      return share.hold(unread + kept())
    }
  }
}

/**
 * Reads an answer ahead of its client, at the speed of the model server: the call ends, and gives back what is scarce, when the
 * model server is done, however slowly the client reads. `pull` gives the encoded pieces, one at a time; `end` makes the text of
 * the final frame, when everything before it is on its way. That text may be long: some dialects repeat the whole answer in it.
 */
export const readAhead = Effect.fnUntraced(function* (
  { answer, begins, encoder, share }: StreamReply,
  end: (final: Frame) => Effect.Effect<string, Unavailable>
) {
  const [count, queue] = [
    makeCount(share, encoder.kept),
    yield* Queue.unbounded<Buffer | Frame, GatewayError | Cause.Done>()
  ]
  const send = (text: string, final: ReadonlyArray<Frame> = []) => {
    const bytes = Buffer.from(text)
    return Effect.andThen(count.add(bytes.length), Queue.offerAll(queue, [...piecesOf(bytes), ...final]))
  }
  const encode = (frames: Arr.NonEmptyReadonlyArray<Frame>) => {
    const last = Arr.lastNonEmpty(frames)
    return send(encoder.frames(last.done ? Arr.initNonEmpty(frames) : frames), last.done ? [last] : [])
  }
  const read = Stream.runForEachArray(answer, encode)
  const say = Effect.uninterruptible(Effect.suspend(() => send(encoder.waiting?.() ?? "")))
  const saying = Effect.repeat(say, Schedule.spaced(sayingEvery))
  yield* Effect.forkScoped(
    Queue.into(begins === undefined ? read : Effect.andThen(Effect.raceFirst(begins, saying), read), queue)
  )
  /** pieces of the final frame that are not sent */
  let rest: ReadonlyArray<Buffer> = []
  const take = (piece: Buffer) => Effect.as(count.take(piece), piece)
  const finish = (final: Frame) =>
    Effect.flatMap(end(final), (text) => {
      const bytes = Buffer.from(text)
      const [first, ...others] = piecesOf(bytes)
      rest = others
      return Effect.andThen(count.add(bytes.length), take(first))
    })
  const pull: Pull.Pull<Buffer, GatewayError> = Effect.suspend(() => {
    const [next, ...others] = rest
    rest = others
    if (next !== undefined) return take(next)
    return Effect.flatMap(Queue.take(queue), (piece) =>
      Buffer.isBuffer(piece) ? take(piece) : finish(piece)
    )
  })
  return { pull, hasRest: () => rest.length > 0 }
})

const encoder = new TextEncoder()
/** the longest character of UTF-8 */
const characterBytes = 4

/** Writes as much of a part as there is room for. */
const write = (part: string | Buffer, room: Buffer) => {
  if (typeof part === "string") return encoder.encodeInto(part, room)
  const bytes = part.copy(room)
  return { read: bytes, written: bytes }
}

/** A complete text of `bytes` bytes. */
export const inPieces = (parts: Parts, bytes: number, share: AnswerShare): Stream.Stream<Buffer> =>
  Stream.fromPull(
    Effect.suspend(() => {
      const count = makeCount(share)
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
        if (size === 0) return Cause.done()
        const piece = memory.subarray(0, size)
        return Effect.as(count.take(piece), Arr.of(piece))
      })
      return Effect.as(count.add(bytes), next)
    })
  )
