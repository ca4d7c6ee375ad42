/**
 * Answers requests that Node refuses, or would mishandle, before the app sees them. They get the common error shape, and
 * then the connection ends. A metric counts them; they have no audit row.
 */
import { randomUUIDv7 } from "node:crypto"
import { type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from "node:http"
import type { Duplex } from "node:stream"
import { makeAttached } from "../../infra/v8/Attached.ts"
import type { MalformedReason } from "../../observability/Metrics.ts"
import { onRequest } from "./onRequest.ts"
import { markMisframed } from "./framing.ts"
import { outcomes } from "../../domain/Outcome.ts"
import { errorBody, type ErrorResponse } from "../errors/errorResponses.ts"

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

/** How long a client may read its answer before the socket is destroyed. */
const lingerMs = 500

const bytesOf = (refusal: Refusal): string => {
  const id = randomUUIDv7()
  const body = JSON.stringify(errorBody(refusal, id))
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

const endWith = (socket: Duplex, refusal: Refusal): void => {
  if (!socket.writable) {
    socket.destroy()
    return
  }
  socket.end(bytesOf(refusal))
  const timer = setTimeout(() => socket.destroy(), lingerMs)
  socket.once("close", () => clearTimeout(timer))
}

/** The requests of one connection. */
interface Conversation {
  /**
   * unfinished answers, in order; a list, because a long-lived Set keeps removed entries in memory (`DenseList.ts`)
   */
  readonly open: Array<ServerResponse>
  /** the request that was read last */
  last: IncomingMessage | undefined
  refused: boolean
}

const conversations = makeAttached<Duplex, Conversation>()

/** Ends the connection with `refusal`, after the answers to all earlier requests are complete. */
const endAfter = (answers: ReadonlyArray<ServerResponse>, socket: Duplex, refusal: Refusal): void => {
  const waited = new Set(answers)
  if (waited.size === 0) return endWith(socket, refusal)
  socket.pause()
  for (const response of waited) {
    response.once("close", () => {
      waited.delete(response)
      if (waited.size === 0) endWith(socket, refusal)
    })
  }
}

/** `count` is called for each refused request, answered or not. */
export const refuseMalformed = (server: Server, count: (reason: MalformedReason) => void): void => {
  const conversationOn = (socket: Duplex): Conversation => {
    const existing = conversations.get(socket)
    if (existing !== undefined) return existing
    const conversation: Conversation = { open: [], last: undefined, refused: false }
    conversations.set(socket, conversation)
    return conversation
  }

  onRequest(
    server,
    (request, response) => {
      const conversation = conversationOn(request.socket)
      conversation.last = request
      conversation.open.push(response)
    },
    (request, response) => {
      const { open } = conversationOn(request.socket)
      open.splice(open.indexOf(response), 1)
    }
  )

  server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    const conversation = conversationOn(socket)
    // One malformed request may raise several errors.
    if (conversation.refused) return
    conversation.refused = true
    const refusal = refusals.get(error.code) ?? unreadable
    // A client that closes the connection has sent nothing wrong.
    if (error.code !== "ECONNRESET") count(refusal.reason)
    if (!socket.writable || error.code === "ECONNRESET") {
      socket.destroy()
      return
    }
    const before = [...conversation.open]
    // The body of the last request is malformed. Its answer is not continued: a second answer to it would be taken as
    // the answer to the next request.
    const broken = conversation.last?.complete === false
    const own = broken ? before.findLast((response) => response.req === conversation.last) : undefined
    if (broken && (own === undefined || own.headersSent)) {
      socket.destroy()
      return
    }
    endAfter(
      before.filter((response) => response !== own),
      socket,
      refusal
    )
  })

  // Node would close it without an answer.
  server.on("connect", (_request, socket) => {
    // Node has removed its own listeners from the socket, so an error event would crash the process.
    socket.on("error", () => socket.destroy())
    count(tunnel.reason)
    const conversation = conversationOn(socket)
    conversation.refused = true
    // Earlier answers can no longer be written in order: Node does not report free space to them any more.
    if (conversation.open.length > 0) socket.destroy()
    else endWith(socket, tunnel)
  })

  // Node would answer it without a body.
  server.on("checkExpectation", (request) => {
    count(expectation.reason)
    const conversation = conversationOn(request.socket)
    conversation.refused = true
    markMisframed(request)
    endAfter([...conversation.open], request.socket, expectation)
  })
}
