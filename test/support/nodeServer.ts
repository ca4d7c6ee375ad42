/** A server of Node on a free port of this machine, with clients of its own. 127.0.0.x are addresses of their own. */
import { once } from "node:events"
import type { Server } from "node:http"
import { connect, type Socket } from "node:net"
import { Effect } from "effect"

/** A connection, and what was heard on it. */
export interface Client {
  readonly socket: Socket
  readonly heard: () => string
}

/** The server listens until the scope ends; its clients leave then. */
export const dialled = Effect.fnUntraced(function* (server: Server) {
  const sockets = new Set<Socket>()
  yield* Effect.acquireRelease(
    Effect.promise(() => once(server.listen(0, "127.0.0.1"), "listening")),
    () =>
      Effect.promise(async () => {
        for (const socket of sockets) socket.destroy()
        server.closeAllConnections()
        await once(server.close(), "close")
      })
  )
  const address = server.address()
  const port = address === null || typeof address === "string" ? 0 : address.port
  return (localAddress = "127.0.0.1") =>
    Effect.promise(async (): Promise<Client> => {
      const socket = connect({ host: "127.0.0.1", port, localAddress })
      sockets.add(socket)
      socket.on("error", () => socket.destroy())
      let text = ""
      socket.setEncoding("latin1").on("data", (piece: string) => (text += piece))
      await once(socket, "connect")
      return { socket, heard: () => text }
    })
})
