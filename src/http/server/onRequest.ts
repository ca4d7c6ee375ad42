/** Listens to every request of Node, also to those that announce their body with `Expect: 100-continue`. */
import type { IncomingMessage, Server, ServerResponse } from "node:http"

export type Listener = (request: IncomingMessage, response: ServerResponse) => void

/** Node emits one event or the other, never both. A listener for only one of them would miss requests. */
export const onRequest = (server: Server, listener: Listener): void => {
  server.on("request", listener)
  server.on("checkContinue", listener)
}
