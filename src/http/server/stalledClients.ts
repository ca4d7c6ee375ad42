/**
 * Cuts clients that stop reading. A stream waits for its client without a time limit of its own, so a stalled client would
 * keep its slot, its hold and the backend for ever. The connection is cut when the client takes no byte for
 * `CLIENT_STALL_TIMEOUT_MS`, and the request ends as for a client that left. Answers are written in pieces
 * (`AnswerBody.ts`); a client that takes one piece in that time is not cut.
 */
import type { Server } from "node:http"
import type { Socket } from "node:net"
import { onRequest } from "./onRequest.ts"

interface Watched {
  /** unfinished answers of the connection, including pipelined ones */
  answers: number
  /** bytes the client had taken at the last check */
  sentBytes: number
  /** since when it has taken none, by `performance.now()` */
  since: number
}

/** The bytes that the kernel has taken: everything written, without what still waits in this process. */
const sentBytesOf = (socket: Socket): number => socket.bytesWritten - socket.writableLength

export const cutStalledClients = (server: Server, stallMs: number): void => {
  const watched = new Map<Socket, Watched>()
  const check = () => {
    const now = performance.now()
    for (const [socket, state] of watched) {
      const sentBytes = sentBytesOf(socket)
      if (socket.writableLength === 0 || sentBytes !== state.sentBytes) {
        state.sentBytes = sentBytes
        state.since = now
      } else if (now - state.since >= stallMs) {
        watched.delete(socket)
        socket.destroy()
      }
    }
  }
  const timer = setInterval(check, Math.max(20, Math.ceil(stallMs / 4)))
  timer.unref()
  server.on("close", () => clearInterval(timer))
  onRequest(server, (request, response) => {
    const { socket } = request
    const state = watched.get(socket) ?? {
      answers: 0,
      sentBytes: sentBytesOf(socket),
      since: performance.now()
    }
    watched.set(socket, state)
    state.answers += 1
    response.on("close", () => {
      state.answers -= 1
      if (state.answers === 0) watched.delete(socket)
    })
  })
}
