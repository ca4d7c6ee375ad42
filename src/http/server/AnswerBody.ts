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
import type { Waiting } from "./UnreadAnswers.ts"

/** Bytes of one write. A client that takes fewer in `CLIENT_STALL_TIMEOUT_MS` does not read. */
export const pieceBytes = 65_536

export class AnswerBody {
  readonly #response: ServerResponse
  readonly #waiting: Waiting
  /** whether pieces are framed here: not when the length is known, nor for HTTP/1.0, where the end of the connection is the end */
  readonly #framed: boolean

  /** The head goes out with the first piece. Throws when Node does not take the headers. */
  constructor(response: ServerResponse, headers: OutgoingHttpHeaders, waiting: Waiting) {
    response.writeHead(200, headers)
    this.#response = response
    this.#waiting = waiting
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
    return this.#drained(Buffer.byteLength(text))
  }

  /** The same for many bytes. They are one chunk, however many writes it takes. */
  writeBytes(bytes: Buffer): Effect.Effect<void> {
    const next = (at: number): Effect.Effect<void> =>
      Effect.suspend(() => {
        if (at === 0 && this.#framed) this.#response.write(`${bytes.length.toString(16)}\r\n`)
        const end = at + pieceBytes
        const hasRoom = this.#response.write(bytes.subarray(at, end))
        const written = hasRoom ? Effect.void : this.#drained(bytes.length)
        if (end < bytes.length) return Effect.andThen(written, next(end))
        if (this.#framed) this.#response.write("\r\n")
        return written
      })
    return next(0)
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
        this.#waiting.hold(0)
      }
      const over = () => {
        forget()
        resume(Effect.void)
      }
      if (response.destroyed) return over()
      this.#waiting.hold(response.writableLength)
      response.once("finish", over).once("close", over)
      this.end()
      return Effect.sync(forget)
    })
  }

  /** Waits for room, while `bytes` are kept in memory. */
  #drained(bytes: number): Effect.Effect<void> {
    return Effect.callback((resume) => {
      this.#waiting.hold(bytes)
      const drained = () => {
        this.#waiting.hold(0)
        resume(Effect.void)
      }
      this.#response.once("drain", drained)
      return Effect.sync(() => {
        this.#waiting.hold(0)
        this.#response.off("drain", drained)
      })
    })
  }
}

const chunkOf = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`
