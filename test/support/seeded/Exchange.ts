/** One exchange of HTTP without a socket: the request as Node's parser hands it over, and the response as its client sees it. */
import { IncomingMessage, ServerResponse } from "node:http"
import { Socket } from "node:net"

/** A request whose head was parsed. Its body comes when the simulation emits it. */
export class Incoming extends IncomingMessage {
  constructor(method: string, url: string, headers: Readonly<Record<string, string>>, address: string) {
    const socket = new Socket()
    Object.defineProperty(socket, "remoteAddress", { value: address })
    super(socket)
    Object.assign(this, { method, url, httpVersion: "1.1", httpVersionMajor: 1, httpVersionMinor: 1 })
    Object.assign(this.headers, headers)
    this.rawHeaders.push(...Object.entries(headers).flat())
  }

  /** Nothing is read from a socket. */
  override resume(): this {
    return this
  }
}

export interface Reader {
  onHead(status: number): void
  /** Returns whether the client has room for more. */
  onChunk(text: string): boolean
  onEnd(): void
}

export class Outgoing extends ServerResponse {
  readonly #reader: Reader
  readonly #decoder = new TextDecoder()

  constructor(incoming: IncomingMessage, reader: Reader) {
    super(incoming)
    this.#reader = reader
  }

  override writeHead(status: number): this {
    this.#reader.onHead(status)
    return this
  }

  override write(chunk: unknown): boolean {
    return this.#reader.onChunk(
      chunk instanceof Uint8Array ? this.#decoder.decode(chunk, { stream: true }) : String(chunk)
    )
  }

  override end(chunk?: unknown): this {
    if (chunk !== undefined) this.write(chunk)
    this.finished = true
    this.#reader.onEnd()
    return this
  }
}
