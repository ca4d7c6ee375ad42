/** Starts a server on a free port of this machine and returns its URL. It is closed, with all connections, with the scope. */
import { once } from "node:events"
import type { Server } from "node:http"
import { Effect, type Scope } from "effect"

export const listening = (server: Server): Effect.Effect<string, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      await once(server.listen(0, "127.0.0.1"), "listening")
      const address = server.address()
      const port = typeof address === "object" && address !== null ? address.port : 0
      return `http://127.0.0.1:${port}`
    }),
    () =>
      Effect.sync(() => {
        server.close()
        server.closeAllConnections()
      })
  )
