/**
 * The listening socket. Node's own limits are set here, each explicitly; what Node refuses before the application
 * sees it gets the same error shape as everything else.
 */
import { randomUUIDv7 } from "node:crypto"
import { createServer, type Server } from "node:http"
import type { Socket } from "node:net"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Duration, Layer } from "effect"
import { HttpMiddleware, HttpServer } from "effect/http"
import { app, type AppOptions } from "./app.ts"
import { errorBody } from "./respond.ts"
import { cutStalledClients } from "./stalls.ts"

export interface ServerOptions extends AppOptions {
  readonly host: string
  readonly port: number
  /** how long running requests may go on once the server stops */
  readonly shutdownGraceMs: number
  /** how long a client may take no byte of an answer that waits for it */
  readonly clientStallTimeoutMs: number
}

const malformed: ReadonlyMap<string | undefined, readonly [status: number, reason: string, message: string]> =
  new Map([
    [
      "HPE_HEADER_OVERFLOW",
      [431, "Request Header Fields Too Large", "request headers are too large"] as const
    ],
    ["ERR_HTTP_REQUEST_TIMEOUT", [408, "Request Timeout", "the request was not received in time"] as const]
  ])

/** Answers what the HTTP parser itself refuses (contract §3), then closes: nothing after it can be trusted. */
const refuseMalformed = (error: NodeJS.ErrnoException, socket: Socket): void => {
  if (!socket.writable || error.code === "ECONNRESET") {
    socket.destroy()
    return
  }
  const [status, reason, message] =
    malformed.get(error.code) ?? ([400, "Bad Request", "malformed HTTP request"] as const)
  const id = randomUUIDv7()
  const body = JSON.stringify(errorBody({ status, type: "invalid_request", message }, id))
  socket.end(
    `HTTP/1.1 ${status} ${reason}\r\nContent-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\n` +
      `X-Request-ID: ${id}\r\nConnection: close\r\n\r\n${body}`
  )
}

const makeServer = (options: ServerOptions): Server => {
  const server = createServer({
    // An Upgrade header would otherwise take the request out of Node's timeouts (hardening 0.2.4).
    shouldUpgradeCallback: () => false,
    headersTimeout: 15_000,
    requestTimeout: 60_000,
    connectionsCheckingInterval: 2_000,
    keepAliveTimeout: 65_000,
    maxHeaderSize: 16_384,
    noDelay: true
  })
  server.maxRequestsPerSocket = 10_000
  server.on("clientError", refuseMalformed)
  cutStalledClients(server, options.clientStallTimeoutMs)
  // Without it a socket that goes idle after close() holds the shutdown for its whole keep-alive (effect4 §6).
  server.on("request", (_request, response) => {
    response.on("finish", () => {
      if (!server.listening) setImmediate(() => server.closeIdleConnections())
    })
  })
  return server
}

/** Serves the app; provides the `HttpServer`, so that a caller can read the address it got. */
export const layer = (options: ServerOptions) =>
  HttpServer.serve(app(options)).pipe(
    Layer.provideMerge(
      NodeHttpServer.layerServer(() => makeServer(options), {
        host: options.host,
        port: options.port,
        gracefulShutdownTimeout: Duration.millis(options.shutdownGraceMs)
      })
    ),
    Layer.provide(Layer.succeed(HttpMiddleware.TracerDisabledWhen, () => true))
  )
