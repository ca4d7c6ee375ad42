/**
 * The listening socket. Node's own limits are set here, each explicitly; what Node refuses before the application
 * sees it gets the same error shape as everything else.
 */
import { randomUUIDv7 } from "node:crypto"
import { createServer, type Server } from "node:http"
import type { Socket } from "node:net"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Duration, Effect, Fiber, Layer } from "effect"
import { HttpMiddleware, HttpServer } from "effect/http"
import { app, type AppOptions } from "./app.ts"
import { Drain } from "./Drain.ts"
import { errorBody } from "./respond.ts"
import { cutStalledClients } from "./stalls.ts"

export interface ServerOptions extends AppOptions {
  readonly host: string
  readonly port: number
  /** how long everything is still answered, with `/readyz` at 503, before the server stops listening */
  readonly shutdownDrainMs: number
  /** how long running requests may go on once it has */
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

const makeServer = (options: ServerOptions, draining: () => boolean): Server => {
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
    if (draining()) response.setHeader("connection", "close")
    response.on("finish", () => {
      if (!server.listening) setImmediate(() => server.closeIdleConnections())
    })
  })
  return server
}

/** What a cut answer gets to say its last words and be settled and audited. */
const lastWords = Duration.seconds(3)

/** The way out, in order; every step is bounded. What is left after it is interrupted. */
const stop = Effect.fnUntraced(function* (server: Server, drain: Drain["Service"], options: ServerOptions) {
  yield* drain.begin
  yield* Effect.logInfo("stopping")
  yield* Effect.sleep(Duration.millis(options.shutdownDrainMs))
  let open = true
  server.close(() => void (open = false))
  const closed = Effect.callback<void>((resume) => {
    if (!open) return resume(Effect.void)
    server.once("close", () => resume(Effect.void))
  })
  const done = yield* Effect.timeoutOption(closed, Duration.millis(options.shutdownGraceMs))
  if (done._tag === "Some") return
  yield* Effect.logWarning("the grace is over: ending what still runs")
  yield* drain.cut
  yield* Effect.timeoutOption(closed, lastWords)
})

/** Serves the app; provides the `HttpServer`, so that a caller can read the address it got. */
export const layer = (options: ServerOptions) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const drain = yield* Drain
      const server = makeServer(options, drain.draining)
      // In a fiber of its own: the one that is told to stop is interrupted, and could wait for nothing.
      const stopping = Effect.flatMap(Effect.forkDetach(stop(server, drain, options)), Fiber.join)
      // Built last, so ended first: the app is still whole while it drains.
      return Layer.effectDiscard(Effect.addFinalizer(() => stopping)).pipe(
        Layer.provideMerge(HttpServer.serve(app(options))),
        Layer.provideMerge(
          NodeHttpServer.layerServer(() => server, {
            host: options.host,
            port: options.port,
            disablePreemptiveShutdown: true
          })
        ),
        Layer.provide(Layer.succeed(HttpMiddleware.TracerDisabledWhen, () => true))
      )
    })
  )
