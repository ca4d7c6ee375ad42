/**
 * Adds the key for a client that sends none. It answers what the tests of Ollama want of a server beside its answers: which
 * models are loaded, by the model server, because the gateway does not serve it; and no model is ever pulled.
 */
import { createServer, request } from "node:http"
import { Effect } from "effect"
import { freePort } from "../../test/support/servers/processes.ts"

/** The address of one before `to`, thrown away with its scope. */
export const keyProxy = Effect.fnUntraced(function* (to: string, server: URL, key: string) {
  const proxy = createServer((asked, answer) => {
    if (asked.url === "/api/pull") return void answer.writeHead(403).end(`{"error":"none is pulled"}`)
    const url = new URL(asked.url ?? "/", asked.url === "/api/ps" ? server : to)
    const headers = { ...asked.headers, host: url.host, authorization: `Bearer ${key}` }
    const sent = request(url, { method: asked.method ?? "GET", headers }, (said) => {
      answer.writeHead(said.statusCode ?? 502, said.headers)
      said.pipe(answer)
    })
    sent.once("error", () => answer.destroy())
    answer.once("close", () => sent.destroy())
    asked.pipe(sent)
  })
  const port = yield* freePort
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => void proxy.listen(port, "127.0.0.1", () => resume(Effect.void))),
    () => Effect.sync(() => proxy.close().closeAllConnections())
  )
  return `http://127.0.0.1:${port}`
})
