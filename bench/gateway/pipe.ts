/**
 * A server with no logic: bytes from one socket to the other; a stream of OpenAI's surface is re-encoded, which is what
 * whoever offers that surface cannot do without.
 */
import { createServer } from "node:http"
import { Pool } from "undici"
import { NdjsonToSse } from "./sse.ts"

export interface Around {
  /** Runs `forward` once the request may be sent to the backend, and gives it what must be done before the answer ends. */
  readonly request: (forward: (finish: (end: () => void) => void) => void, fail: () => void) => void
}

/** Serves on `PORT`, in front of `BACKEND_URL`. */
export const servePipe = ({ request: around }: Around): void => {
  const pool = new Pool(process.env["BACKEND_URL"] ?? "", { connections: 512 })
  createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
    const chunks: Array<Buffer> = []
    const fail = () => void response.destroy()
    request.on("data", (chunk: Buffer) => chunks.push(chunk))
    request.on("end", () => {
      const body = Buffer.concat(chunks)
      const reencodes = request.url === "/v1/chat/completions" && body.includes('"stream":true')
      const sse = reencodes ? new NdjsonToSse("chatcmpl-1", "paced") : undefined
      around((finish) => {
        pool.dispatch(
          {
            method: "POST",
            path: reencodes ? "/api/chat" : (request.url ?? "/"),
            headers: { "content-type": "application/json" },
            body
          },
          {
            onRequestStart: (controller) =>
              response.on("close", () => response.writableEnded || controller.abort(new Error("gone"))),
            onResponseStart: (_controller, status) =>
              void response.writeHead(status, {
                "content-type": reencodes ? "text/event-stream" : "application/x-ndjson"
              }),
            onResponseData: (_controller, chunk) =>
              void response.write(sse === undefined ? chunk : sse.push(chunk)),
            onResponseEnd: () => finish(() => void response.end()),
            onResponseError: fail
          }
        )
      }, fail)
    })
  }).listen(Number(process.env["PORT"] ?? 0), "127.0.0.1", () => process.stdout.write("up\n"))
}
