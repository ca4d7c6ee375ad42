/**
 * Cuts clients that stop reading. A stream waits for its client without a time limit of its own, so a stalled client would
 * keep its slot, its hold and the backend for ever. The connection is cut when the client takes no byte for
 * `CLIENT_STALL_TIMEOUT_MS`, and the request ends as for a client that left. Answers are written in pieces
 * (`AnswerBody.ts`); a client that takes one piece in that time is not cut.
 */
import type { Server } from "node:http"
import type { Socket } from "node:net"
import { makeAttached } from "../../infra/v8/Attached.ts"
import { DenseList } from "../../infra/v8/DenseList.ts"
import { onRequest } from "./onRequest.ts"

/** A connection that has had a request. */
interface Watched {
  readonly socket: Socket
  /** bytes the client had taken at the last check */
  sentBytes: number
  /** since when it has taken none, by `performance.now()` */
  since: number
}

const watchedSockets = makeAttached<Socket, Watched>()

/** The bytes that the kernel has taken: everything written, without what still waits in this process. */
const sentBytesOf = (socket: Socket): number => socket.bytesWritten - socket.writableLength

/** A connection is watched from its first request until it closes, so that a request costs no listener and no entry. */
export const cutStalledClients = (server: Server, stallMs: number): void => {
  const all = new DenseList<Watched>()
  const watch = (socket: Socket): Watched => {
    const watched = { socket, sentBytes: sentBytesOf(socket), since: performance.now() }
    watchedSockets.set(socket, watched)
    const handle = all.add(watched)
    socket.once("close", () => all.remove(handle))
    return watched
  }
  const check = () => {
    const now = performance.now()
    for (const watched of all.all) {
      const { socket } = watched
      const sentBytes = sentBytesOf(socket)
      if (socket.writableLength === 0 || sentBytes !== watched.sentBytes) {
        watched.sentBytes = sentBytes
        watched.since = now
      } else if (now - watched.since >= stallMs) socket.destroy()
    }
  }
  const timer = setInterval(check, Math.max(20, Math.ceil(stallMs / 4)))
  timer.unref()
  server.on("close", () => clearInterval(timer))
  onRequest(server, ({ socket }) => {
    const watched = watchedSockets.get(socket) ?? watch(socket)
    if (socket.writableLength === 0) watched.since = performance.now()
  })
}
