/** Listens to every request of Node, also to those that announce their body with `Expect: 100-continue`. */
import type { IncomingMessage, Server, ServerResponse } from "node:http"

export type Listener = (request: IncomingMessage, response: ServerResponse) => void

interface Watcher {
  readonly begin: Listener
  /** is called when the answer is over, or its connection */
  readonly end: Listener | undefined
}

const watchersOf = new WeakMap<Server, Array<Watcher>>()

/**
 * Calls `begin` for each request, and `end` when its answer is closed. All watchers of a server share one listener of each
 * answer, because every request pays for each listener.
 */
export const onRequest = (server: Server, begin: Listener, end?: Listener): void => {
  const existing = watchersOf.get(server)
  if (existing !== undefined) return void existing.push({ begin, end })
  const watchers: Array<Watcher> = [{ begin, end }]
  watchersOf.set(server, watchers)
  const listener: Listener = (request, response) => {
    for (const watcher of watchers) watcher.begin(request, response)
    response.once("close", () => {
      for (const watcher of watchers) watcher.end?.(request, response)
    })
  }
  // Node emits one event or the other, never both. A listener for only one of them would miss requests.
  server.on("request", listener)
  server.on("checkContinue", listener)
}
