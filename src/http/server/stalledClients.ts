/**
 * Cuts clients that stop reading. A stream has no time limit of its own while it waits for its client, so a stalled client
 * would keep its slot, its hold and the backend for ever. The connection is cut when the client takes no byte for
 * `CLIENT_STALL_TIMEOUT_MS`, and the request ends as for a client that left. Answers are written in pieces (`AnswerBody.ts`):
 * a client that takes one piece in that time is not cut.
 */
import type { Server } from "node:http"
import type { Socket } from "node:net"
import { onRequest } from "./onRequest.ts"

interface Watched {
  /** answers that are asked for on the connection and not yet given: some may be pipelined behind another */
  answers: number
  /** bytes the client had taken when we last looked */
  sentBytes: number
  /** since when it has taken none; performance.now() */
  since: number
}

/** What the kernel has accepted for the client: everything written, less what still waits in this process. */
const sentBytesOf = (socket: Socket): number => socket.bytesWritten - socket.writableLength

export const cutStalledClients = (server: Server, stallMs: number): void => {
  const watched = new Map<Socket, Watched>()
  const look = () => {
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
  const timer = setInterval(look, Math.max(20, Math.ceil(stallMs / 4)))
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
