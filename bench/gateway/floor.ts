/**
 * The floor: node:http and undici with no logic at all, bytes from one socket to the other; a stream of OpenAI's surface
 * is re-encoded, which is what whoever offers that surface cannot do without.
 */
import { createServer } from "node:http"
import { Pool } from "undici"
import { NdjsonToSse } from "./sse.ts"

const pool = new Pool(process.env["BACKEND_URL"] ?? "", { connections: 512 })

createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
  const chunks: Array<Buffer> = []
  request.on("data", (chunk: Buffer) => chunks.push(chunk))
  request.on("end", () => {
    const body = Buffer.concat(chunks)
    const reencodes = request.url === "/v1/chat/completions" && body.includes('"stream":true')
    const sse = reencodes ? new NdjsonToSse("chatcmpl-1", "paced") : undefined
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
        onResponseEnd: () => void response.end(),
        onResponseError: () => void response.destroy()
      }
    )
  })
}).listen(Number(process.env["PORT"] ?? 0), "127.0.0.1", () => process.stdout.write("up\n"))
