/** Every request Node hands out, the ones that announce their body with `Expect: 100-continue` included. */
import type { IncomingMessage, Server, ServerResponse } from "node:http"

export type Listener = (request: IncomingMessage, response: ServerResponse) => void

/** Node raises one event or the other, never both: what listens to one of them alone overlooks requests. */
export const onRequest = (server: Server, listener: Listener): void => {
  server.on("request", listener)
  server.on("checkContinue", listener)
}
