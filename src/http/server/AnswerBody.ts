/**
 * The body of an answer, written to the response itself, in pieces of 64 KiB at most and the next one when the client has
 * taken the last. Whether a client reads can then be told from the bytes that the kernel took, however large the answer.
 *
 * Streams come without a length. Node's chunked encoding makes four writes of each piece (length, end of line, bytes, end
 * of line), and Effect's response catches what each pull of a stream could fail with; both were paid for every frame of
 * every stream (`bench/RESULTS.md`). So pieces are framed here.
 */
import type { OutgoingHttpHeaders, ServerResponse } from "node:http"
import { Effect } from "effect"
import type { Unread } from "../../backend/AnswerMemory.ts"

/** Bytes of one write. A client that takes fewer in `CLIENT_STALL_TIMEOUT_MS` does not read. */
export const pieceBytes = 65_536

export class AnswerBody {
  readonly #response: ServerResponse
  readonly #unread: Unread
  /** whether pieces are framed here: not when the length is known, nor for HTTP/1.0, where the end of the connection is the end */
  readonly #framed: boolean

  readonly #taken = Effect.sync(() => this.#unread.hold(0))

  /** The head goes out with the first piece. Throws when Node does not take the headers. */
  constructor(response: ServerResponse, headers: OutgoingHttpHeaders, unread: Unread) {
    response.writeHead(200, headers)
    this.#response = response
    this.#unread = unread
    this.#framed = response.chunkedEncoding
    // It stands in the head; from here on Node passes on what it is given.
    response.chunkedEncoding = false
  }

  /** Goes on as soon as there is room for more. One writer at a time. */
  write(text: string): Effect.Effect<void> {
    // A chunk of no bytes would be the last one.
    if (text === "") return Effect.void
    // The text itself is not kept: it would be as long as its bytes once more.
    if (text.length > pieceBytes) return this.writeBytes(Buffer.from(text))
    if (this.#response.write(this.#framed ? chunkOf(text) : text)) return Effect.void
    return Effect.ensuring(this.#drained(Buffer.byteLength(text)), this.#taken)
  }

  /** The same for many bytes. They are one chunk, however many writes it takes, and all of them are kept until the last. */
  writeBytes(...parts: ReadonlyArray<Buffer>): Effect.Effect<void> {
    return Effect.suspend(() => {
      const total = parts.reduce((sum, { length }) => sum + length, 0)
      const groups = groupsOf(parts)
      if (this.#framed) this.#response.write(`${total.toString(16)}\r\n`)
      const next: Effect.Effect<void> = Effect.suspend(() => {
        for (let group = groups.next(); group.done !== true; group = groups.next()) {
          if (!this.#writeTogether(group.value)) return Effect.andThen(this.#drained(total), next)
        }
        if (this.#framed) this.#response.write("\r\n")
        return Effect.void
      })
      return Effect.ensuring(next, this.#taken)
    })
  }

  /** All has been said. Whoever ends a response without it destroys it, so that half an answer does not look whole. */
  end(): void {
    this.#response.end(this.#framed ? "0\r\n\r\n" : "")
  }

  /** Ends it, and waits until the kernel has the last byte or the connection is gone. */
  endAndWait(): Effect.Effect<void> {
    return Effect.callback((resume) => {
      const response = this.#response
      const forget = () => {
        response.off("finish", over).off("close", over)
        this.#unread.hold(0)
      }
      const over = () => {
        forget()
        resume(Effect.void)
      }
      if (response.destroyed) return over()
      this.#unread.hold(response.writableLength)
      response.once("finish", over).once("close", over)
      this.end()
      return Effect.sync(forget)
    })
  }

  /** Answers whether there is room for more. */
  #writeTogether(pieces: ReadonlyArray<Buffer>): boolean {
    let hasRoom = true
    this.#response.cork()
    for (const piece of pieces) hasRoom = this.#response.write(piece)
    this.#response.uncork()
    return hasRoom
  }

  /** Waits for room, while `bytes` are kept in memory. */
  #drained(bytes: number): Effect.Effect<void> {
    return Effect.callback((resume) => {
      this.#unread.hold(bytes)
      const drained = () => resume(Effect.void)
      this.#response.once("drain", drained)
      return Effect.sync(() => void this.#response.off("drain", drained))
    })
  }
}

const chunkOf = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`

/** The same bytes in groups of `pieceBytes` at most, each of which is one write. Nothing is copied. */
const groupsOf = function* (parts: ReadonlyArray<Buffer>): Generator<ReadonlyArray<Buffer>, void> {
  let group: Array<Buffer> = []
  let size = 0
  for (const part of parts) {
    for (let at = 0; at < part.length; at += pieceBytes) {
      const piece = part.subarray(at, at + pieceBytes)
      if (size + piece.length > pieceBytes) {
        yield group
        group = []
        size = 0
      }
      group.push(piece)
      size += piece.length
    }
  }
  if (group.length > 0) yield group
}
