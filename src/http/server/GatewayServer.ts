/**
 * Node's server, with one request at a time on each connection, and an answer in the common error shape to what is no request.
 *
 * *Details* A request that comes before the answer to the one before it is over (pipelining) is never started: that answer is
 * the last one of its connection. The same holds for bytes behind a request that are no request. A client has to send again
 * what was not answered, on another connection (RFC 9112, section 9.3.2). A connection on which many requests come too early is
 * destroyed at once, because Node keeps the objects of each.
 *
 * Requests that Node refuses, or would mishandle, are counted by reason; they have no audit row.
 */
import { IncomingMessage, Server, type ServerOptions, ServerResponse, STATUS_CODES } from "node:http"
import type { Socket } from "node:net"
import type { Duplex } from "node:stream"
import { jsonText } from "../../domain/json.ts"
import { outcomes } from "../../domain/Outcome.ts"
import { newRequestId } from "../../infra/RequestIds.ts"
import type { MalformedReason } from "../../observability/Metrics.ts"
import { errorBody, type ErrorResponse } from "../errors/errorResponses.ts"
import { isMisframed } from "./headers.ts"
import { stopReading } from "./stopReading.ts"

interface Refusal extends ErrorResponse {
  readonly reason: MalformedReason
}

const unreadable: Refusal = {
  reason: "syntax",
  ...outcomes.invalidRequest,
  message: "malformed HTTP request"
}
const refusals: ReadonlyMap<string | undefined, Refusal> = new Map<string, Refusal>([
  [
    "HPE_HEADER_OVERFLOW",
    { reason: "size", ...outcomes.headersTooLarge, message: "request headers are too large" }
  ],
  [
    "ERR_HTTP_REQUEST_TIMEOUT",
    { reason: "time", ...outcomes.requestTimeout, message: "the request was not received in time" }
  ]
])
const tunnel: Refusal = { reason: "tunnel", ...outcomes.forbidden, message: "forbidden" }
const expectation: Refusal = {
  reason: "expectation",
  ...outcomes.expectationFailed,
  message: "Expect: expected nothing but 100-continue"
}

/** How long a client may read a refusal before the connection is destroyed. */
const lingerMs = 500

const bytesOf = (refusal: Refusal): string => {
  const id = newRequestId()
  const body = jsonText(errorBody(refusal, id))
  return [
    `HTTP/1.1 ${refusal.status} ${STATUS_CODES[refusal.status]}`,
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-ID: ${id}`,
    "Connection: close",
    "",
    body
  ].join("\r\n")
}

/** Ends a connection with its last bytes, and destroys it when its client had time to read them. */
const endSlowly = (socket: Duplex, text = ""): void => {
  socket.end(text)
  const timer = setTimeout(() => socket.destroy(), lingerMs)
  socket.once("close", () => clearTimeout(timer))
}

/** The refusal is the last answer of the connection. */
const endWith = (socket: Duplex, refusal: Refusal): void => {
  if (!socket.writable) return void socket.destroy()
  endSlowly(socket, bytesOf(refusal))
}

/** Requests that may come too early before the answer that is being made is cut too. */
export const maxDropped = 16

/** What a client says on one connection, and what it is answered. */
interface Conversation {
  /** the request that was started last */
  request: IncomingMessage | undefined
  /** the answer to it, until that is over */
  response: ServerResponse | undefined
  /** whether that answer is the last one */
  isLast: boolean
  /** requests that came too early */
  dropped: number
}

export interface GatewayServerOptions extends ServerOptions {
  /** is called for each request that is malformed, and once for a connection on which requests come too early */
  readonly refused: (reason: MalformedReason) => void
  /** whether a connection ends with its next answer */
  readonly isDraining: () => boolean
}

/** The events of a request; Node emits one of them for each. */
const requestEvents: ReadonlySet<string> = new Set(["request", "checkContinue", "checkExpectation"])

export class GatewayServer extends Server {
  readonly #options: GatewayServerOptions
  readonly #conversations = new WeakMap<Duplex, Conversation>()
  #closesIdle = false

  constructor(options: GatewayServerOptions) {
    // Without `shouldUpgradeCallback` Node applies no timeouts to a request with an Upgrade header. Without a Host header it
    // would answer without a body; the app refuses that itself.
    super({ ...options, shouldUpgradeCallback: () => false, requireHostHeader: false })
    this.#options = options
    this.on("clientError", (error: NodeJS.ErrnoException, socket) => this.#refuseMalformed(error, socket))
    // Node would close the connection without an answer.
    this.on("connect", (_request, socket) => this.#refuseTunnel(socket))
    // Node would answer without a body.
    this.on("checkExpectation", ({ socket }) => this.#refuse(socket, expectation))
  }

  /** From now on connections are closed as soon as they are idle. After `close()` they would keep their keep-alive time. */
  closeIdle(): void {
    this.#closesIdle = true
    this.closeIdleConnections()
  }

  override emit(event: string, ...args: Array<unknown>): boolean {
    const [request, response] = args
    const isRequest =
      requestEvents.has(event) && request instanceof IncomingMessage && response instanceof ServerResponse
    return isRequest && !this.#begin(request, response) ? true : super.emit(event, ...args)
  }

  #conversationOn(socket: Duplex): Conversation {
    const known = this.#conversations.get(socket)
    if (known !== undefined) return known
    const conversation = { request: undefined, response: undefined, isLast: false, dropped: 0 }
    this.#conversations.set(socket, conversation)
    return conversation
  }

  /** Returns false for a request that comes too early. */
  #begin(request: IncomingMessage, response: ServerResponse): boolean {
    const { socket } = request
    const conversation = this.#conversationOn(socket)
    if (conversation.response !== undefined || conversation.isLast || !socket.writable) {
      conversation.dropped += 1
      // The part of its body that has arrived is discarded.
      request.resume()
      if (conversation.dropped > maxDropped) socket.destroy()
      else this.#endAfterAnswer(conversation, socket)
      return false
    }
    conversation.request = request
    conversation.response = response
    response.once("close", () => {
      conversation.response = undefined
      if (this.#closesIdle) setImmediate(() => this.closeIdleConnections())
    })
    // The end of a misframed request is unclear: what comes behind it may be a part of its body.
    if (isMisframed(request) || this.#options.isDraining()) response.setHeader("connection", "close")
    return true
  }

  /** The answer that is being made is the last one of its connection. */
  #endAfterAnswer(conversation: Conversation, socket: Socket): void {
    const { isLast, response } = conversation
    if (isLast || response === undefined) return
    conversation.isLast = true
    this.#options.refused("pipelined")
    const readAgain = stopReading(socket)
    if (!response.headersSent) response.setHeader("connection", "close")
    // Node ends the connection with it. A connection with bytes that nobody has read is reset, and what the client has not read of
    // its answer is lost: so they are read.
    socket.destroySoon = () => {
      readAgain()
      if (!socket.writableEnded) endSlowly(socket)
    }
    response.once("finish", () => socket.destroySoon())
  }

  /** Ends the connection: with this refusal, or without it. */
  #refuse(socket: Duplex, refusal: Refusal, isSilent = false): void {
    this.#conversationOn(socket).isLast = true
    this.#options.refused(refusal.reason)
    if (isSilent) socket.destroy()
    else endWith(socket, refusal)
  }

  #refuseMalformed(error: NodeJS.ErrnoException, socket: Duplex): void {
    const conversation = this.#conversationOn(socket)
    const { isLast, request, response } = conversation
    // A client that closes the connection has sent nothing wrong.
    if (error.code === "ECONNRESET") return void socket.destroy()
    // One malformed request may raise several errors.
    if (isLast) return
    if (response !== undefined && request?.complete === true) {
      return this.#endAfterAnswer(conversation, request.socket)
    }
    // The rest of the last request is malformed. A second answer to it would be taken as the answer to the next request.
    const isAnswered = request?.complete === false && (response?.headersSent ?? true)
    this.#refuse(socket, refusals.get(error.code) ?? unreadable, isAnswered)
  }

  #refuseTunnel(socket: Duplex): void {
    // Node has removed its own listeners from the socket, so an error event would crash the process.
    socket.on("error", () => socket.destroy())
    // The answer that is being made can no longer be completed: Node does not report free space to it any more.
    this.#refuse(socket, tunnel, this.#conversationOn(socket).response !== undefined)
  }
}
