/** The floor: node:http and undici with no logic at all, bytes from one socket to the other. */
import { createServer } from "node:http"
import { Pool } from "undici"

const pool = new Pool(process.env["BACKEND_URL"] ?? "", { connections: 512 })

createServer({ keepAliveTimeout: 120_000 }, (request, response) => {
  const chunks: Array<Buffer> = []
  request.on("data", (chunk: Buffer) => chunks.push(chunk))
  request.on("end", () => {
    pool.dispatch(
      {
        method: "POST",
        path: request.url ?? "/",
        headers: { "content-type": "application/json" },
        body: Buffer.concat(chunks)
      },
      {
        onRequestStart: (controller) =>
          response.on("close", () => response.writableEnded || controller.abort(new Error("gone"))),
        onResponseStart: (_controller, status) =>
          void response.writeHead(status, { "content-type": "application/x-ndjson" }),
        onResponseData: (_controller, chunk) => void response.write(chunk),
        onResponseEnd: () => void response.end(),
        onResponseError: () => void response.destroy()
      }
    )
  })
}).listen(Number(process.env["PORT"] ?? 0), "127.0.0.1", () => process.stdout.write("up\n"))
