/**
 * Writes the body of an answer directly to Node's response, in pieces of at most 64 KiB, each after the client has taken
 * the one before. So the bytes that the kernel took show whether a client reads, however large the answer is.
 *
 * This class does the chunked encoding itself. Node would make four writes for each piece (length, end of line, bytes,
 * end of line), and a stream in an Effect response costs more for each frame (`bench/RESULTS.md`).
 */
import type { OutgoingHttpHeaders, ServerResponse } from "node:http"
import { Effect } from "effect"
import type { Unread } from "../../backend/AnswerMemory.ts"
import { freeBuffer } from "../../infra/freeBuffer.ts"

/** Bytes of one write. A client that takes fewer in `CLIENT_STALL_TIMEOUT_MS` does not read. */
export const pieceBytes = 65_536
/** Smaller parts are copied to be written together. */
const largeBytes = 16_384

export class AnswerBody {
  readonly #response: ServerResponse
  readonly #unread: Unread
  /** whether the body is chunked; not when its length is sent, and not for HTTP/1.0 */
  readonly #chunked: boolean
  /** whether the head is written */
  #begun = false
  readonly #joined = new JoinedPieces()

  readonly #release = Effect.sync(() => this.#unread.hold(0))

  /** The head goes out with the first piece. Throws when Node does not take the headers. */
  constructor(response: ServerResponse, headers: OutgoingHttpHeaders, unread: Unread) {
    response.writeHead(200, headers)
    this.#response = response
    this.#unread = unread
    this.#chunked = response.chunkedEncoding
    // The head is already made; from here on Node must not encode the body again.
    response.chunkedEncoding = false
  }

  /** Writes `text`, and succeeds when there is room for more. Only one writer may write at a time. */
  write(text: string): Effect.Effect<void> {
    return this.writeNow(text) ?? Effect.void
  }

  /** The same for a writer without a fiber: it returns the wait for room, or `undefined` when there is room. */
  writeNow(text: string): Effect.Effect<void> | undefined {
    // An empty chunk would end the body.
    if (text === "") return undefined
    // As bytes, so that the text need not be kept as well.
    if (text.length > pieceBytes) return this.writeBytes(Buffer.from(text))
    if (this.#push(this.#chunked ? chunkOf(text) : text)) return undefined
    return Effect.ensuring(this.#drained(Buffer.byteLength(text)), this.#release)
  }

  /** Writes many bytes as one chunk. All of them are kept in memory until the last one is taken. */
  writeBytes(...parts: ReadonlyArray<Buffer>): Effect.Effect<void> {
    return Effect.suspend(() => {
      const total = parts.reduce((sum, { length }) => sum + length, 0)
      const pieces = piecesOf(parts, this.#joined)
      if (this.#chunked) this.#push(`${total.toString(16)}\r\n`)
      const next: Effect.Effect<void> = Effect.suspend(() => {
        if (this.#isTaken) this.#joined.reuse()
        for (let piece = pieces.next(); piece.done !== true; piece = pieces.next()) {
          const hasRoom = this.#push(piece.value)
          // A piece can be as large as the buffer of the connection, which then has no room even when the kernel took all of it.
          if (this.#isTaken) this.#joined.reuse()
          else if (!hasRoom) return Effect.andThen(this.#drained(total + piece.value.length), next)
        }
        if (this.#chunked) this.#push("\r\n")
        return Effect.void
      })
      return Effect.ensuring(next, this.#release)
    })
  }

  /** Whether the kernel has all bytes that were written. */
  get #isTaken(): boolean {
    return this.#response.socket !== null && this.#response.writableLength === 0
  }

  /**
   * Ends the body after `text`, in one write. A response that ends without this call is destroyed, so that an incomplete
   * answer is visible.
   */
  end(text = ""): void {
    const last = text === "" || !this.#chunked ? text : chunkOf(text)
    this.#response.end(this.#chunked ? `${last}0\r\n\r\n` : last)
  }

  /**
   * Ends the body, and waits until the kernel has the last byte or the connection is gone. Succeeds with whether nothing is
   * read any more from the memory of what was written.
   */
  endAndWait(): Effect.Effect<boolean> {
    return Effect.callback((resume) => {
      const response = this.#response
      const { socket } = response
      const cleanUp = () => {
        response.off("finish", finished).off("close", gone)
        this.#unread.hold(0)
      }
      const finished = () => {
        cleanUp()
        // Node also emits this when the connection was destroyed. Then a write may be under way, whose bytes count.
        const isTaken = socket?.writableLength === 0
        if (isTaken) this.#joined.free()
        resume(Effect.succeed(isTaken))
      }
      const gone = () => {
        cleanUp()
        resume(Effect.succeed(false))
      }
      if (response.destroyed) return gone()
      this.#unread.hold(response.writableLength)
      response.once("finish", finished).once("close", gone)
      this.end()
      return Effect.sync(cleanUp)
    })
  }

  /**
   * Returns whether there is room for more. The head goes through the response. What follows goes to the connection itself:
   * the response would cork it for each frame, and write at the end of the turn (`bench/RESULTS.md`).
   */
  #push(piece: string | Buffer): boolean {
    const { socket } = this.#response
    if (this.#begun && socket !== null) return socket.write(piece)
    this.#begun = true
    return this.#response.write(piece)
  }

  /** Waits for room. Meanwhile `bytes` are kept in memory. */
  #drained(bytes: number): Effect.Effect<void> {
    return Effect.callback((resume) => {
      this.#unread.hold(bytes)
      const drained = () => resume(Effect.void)
      const target = this.#response.socket ?? this.#response
      target.once("drain", drained)
      return Effect.sync(() => void target.off("drain", drained))
    })
  }
}

const chunkOf = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`

/** Memory of pieces that are made of several parts. */
class JoinedPieces {
  /** nothing is written from it */
  #free: Buffer | undefined
  /** the kernel may not have all of its bytes yet */
  readonly #used: Array<Buffer> = []

  /** One piece of `parts`, which have `size` bytes together. */
  join(parts: ReadonlyArray<Buffer>, size: number): Buffer {
    const [first] = parts
    if (parts.length === 1 && first !== undefined) return first
    if (size < largeBytes) return Buffer.concat(parts)
    const memory = this.#free ?? Buffer.allocUnsafeSlow(pieceBytes)
    this.#free = undefined
    this.#used.push(memory)
    let at = 0
    for (const part of parts) at += part.copy(memory, at)
    return memory.subarray(0, at)
  }

  /** The kernel has all pieces: the memory of one is used for the next one, and the others are freed. */
  reuse(): void {
    for (let memory = this.#used.pop(); memory !== undefined; memory = this.#used.pop()) {
      if (this.#free === undefined) this.#free = memory
      else freeBuffer(memory)
    }
  }

  /** The kernel has all pieces, and there are no more. */
  free(): void {
    this.reuse()
    if (this.#free !== undefined) freeBuffer(this.#free)
    this.#free = undefined
  }
}

/**
 * The bytes in pieces of at most `pieceBytes`. Small parts are copied into one piece, because a write costs more than the
 * copy (`bench/RESULTS.md`). Large parts are not copied.
 */
const piecesOf = function* (parts: ReadonlyArray<Buffer>, joined: JoinedPieces): Generator<Buffer, void> {
  let group: Array<Buffer> = []
  let size = 0
  for (const part of parts) {
    const isLarge = part.length >= largeBytes
    if (size > 0 && (isLarge || size + part.length > pieceBytes)) {
      yield joined.join(group, size)
      group = []
      size = 0
    }
    if (isLarge) {
      for (let at = 0; at < part.length; at += pieceBytes) yield part.subarray(at, at + pieceBytes)
    } else {
      group.push(part)
      size += part.length
    }
  }
  if (size > 0) yield joined.join(group, size)
}
