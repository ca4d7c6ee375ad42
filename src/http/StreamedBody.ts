/**
 * The body of a streamed answer, written to the response itself, one piece a write. Node's chunked encoding makes four
 * writes of each piece (length, end of line, bytes, end of line), and Effect's response catches what each pull of a stream
 * could fail with; both were paid for every frame of every stream (`bench/RESULTS.md`).
 */
import type { OutgoingHttpHeaders, ServerResponse } from "node:http"
import { Effect } from "effect"

export class StreamedBody {
  readonly #response: ServerResponse
  /** whether pieces are framed here: to HTTP/1.1 they are, to HTTP/1.0 the end of the connection is the end */
  readonly #framed: boolean

  /** The head goes out with the first piece. Throws when Node does not take the headers. */
  constructor(response: ServerResponse, headers: OutgoingHttpHeaders) {
    response.writeHead(200, headers)
    this.#response = response
    this.#framed = response.chunkedEncoding
    // It stands in the head; from here on Node passes on what it is given.
    response.chunkedEncoding = false
  }

  /** Goes on as soon as there is room for more. One writer at a time. */
  write(text: string): Effect.Effect<void> {
    // A chunk of no bytes would be the last one.
    if (text === "" || this.#response.write(this.#framed ? chunkOf(text) : text)) return Effect.void
    return this.#drained()
  }

  /** All has been said. Whoever ends a response without it destroys it, so that half an answer does not look whole. */
  end(): void {
    this.#response.end(this.#framed ? "0\r\n\r\n" : "")
  }

  #drained(): Effect.Effect<void> {
    return Effect.callback((resume) => {
      const drained = () => resume(Effect.void)
      this.#response.once("drain", drained)
      return Effect.sync(() => void this.#response.off("drain", drained))
    })
  }
}

const chunkOf = (text: string): string => `${Buffer.byteLength(text).toString(16)}\r\n${text}\r\n`
