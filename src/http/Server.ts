/**
 * The listening socket. It sets all limits of Node explicitly. Requests that Node refuses get the common error shape.
 */
import type { Server } from "node:http"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Duration, Effect, Fiber, Layer } from "effect"
import { HttpMiddleware, HttpServer } from "effect/http"
import { type MalformedReason, Metrics } from "../observability/Metrics.ts"
import { type AppOptions, makeApp } from "./app.ts"
import { FailureLog } from "../observability/failureLog.ts"
import { Drain } from "../infra/Drain.ts"
import { type Connections, limitConnections } from "./server/connections.ts"
import { delayNewConnections } from "./server/newConnections.ts"
import { onRequest } from "./server/onRequest.ts"
import { FreeWork } from "./FreeWork.ts"
import { isWithin } from "./server/addresses.ts"
import { checkFraming } from "./server/framing.ts"
import { refuseMalformed } from "./server/malformed.ts"
import { Readiness } from "./health.ts"
import { ClientTimeouts, type ClientTimeoutsMs } from "./server/ClientTimeouts.ts"
import { PipeliningServer } from "./server/pipelining.ts"
import { RequestBodies } from "./server/RequestBodies.ts"
import { cutStalledClients } from "./server/stalledClients.ts"
import { Tarpit } from "./server/Tarpit.ts"

export interface ServerOptions extends AppOptions {
  readonly host: string
  readonly port: number
  /** how long all requests are still answered, with `/readyz` at 503, before the server stops listening */
  readonly shutdownDrainMs: number
  /** how long running requests may go on after that */
  readonly shutdownGraceMs: number
  /** how long a client may take no byte of its answer */
  readonly clientStallTimeoutMs: number
  /** the bounds of this process */
  readonly bounds: {
    /** maximal connections at the same time */
    readonly connections: number
    /** of one address; trusted proxies are exempt */
    readonly connectionsPerAddress: number
    /** new connections of an address that are read at once */
    readonly newConnections: { readonly perSecond: number; readonly burst: number }
    /** refusals of unknown callers that are answered at once */
    readonly anonymousRefusals: { readonly perSecond: number; readonly burst: number }
    /** audit rows of their own for refusals of unknown callers, for each address and minute */
    readonly anonymousRowsPerMinute: number
    /** bytes of memory for all request bodies */
    readonly requestBodiesMaxBytes: number
  }
}

/** The limit of Node itself is so much higher, so that `connections.ts` can make room. */
const spareConnections = 256
/** A connection ends after this many requests. Further pipelined requests are not answered. */
const maxRequests = 10_000

interface Watchers {
  readonly draining: () => boolean
  readonly malformed: (reason: MalformedReason) => void
}

const makeServer = (
  options: ServerOptions,
  timeouts: ClientTimeoutsMs,
  { draining, malformed }: Watchers
): {
  readonly server: Server
  readonly connections: Connections
  readonly newConnections: { readonly delayed: number }
  /** from now on a connection is closed as soon as it is idle */
  readonly closeIdle: () => void
} => {
  let closesIdle = false
  const server = new PipeliningServer(
    {
      // Without this, Node applies no timeouts to a request with an Upgrade header.
      shouldUpgradeCallback: () => false,
      headersTimeout: timeouts.head,
      requestTimeout: timeouts.request,
      connectionsCheckingInterval: timeouts.check,
      keepAliveTimeout: timeouts.idle,
      maxHeaderSize: 16_384,
      // The app refuses it with a message (`framing.ts`).
      requireHostHeader: false,
      noDelay: true
    },
    () => malformed("pipelined")
  )
  server.maxConnections = options.bounds.connections + spareConnections
  server.maxRequestsPerSocket = maxRequests
  refuseMalformed(server, malformed)
  cutStalledClients(server, options.clientStallTimeoutMs)
  onRequest(
    server,
    (request, response) => {
      if (!checkFraming(request) || draining()) response.setHeader("connection", "close")
    },
    // A socket that becomes idle after close() would otherwise delay the shutdown for its whole keep-alive time.
    () => {
      if (closesIdle) setImmediate(() => server.closeIdleConnections())
    }
  )
  const isExempt = (address: string) => isWithin(options.trustedProxies, address)
  const newConnections = delayNewConnections(server, { isExempt, ...options.bounds.newConnections })
  const connections = limitConnections(server, {
    max: options.bounds.connections,
    perAddress: options.bounds.connectionsPerAddress,
    isExempt,
    headMs: timeouts.head,
    idleMs: timeouts.idle
  })
  const closeIdle = () => void (closesIdle = true)
  return { server, connections, newConnections, closeIdle }
}

/** How long an aborted request may take to send its last line and to be settled and audited. */
const abortTimeout = Duration.seconds(3)

/** The steps of a stop, each with a bound. Requests that still run after it are interrupted. */
const stop = Effect.fnUntraced(function* (
  { closeIdle, server }: Pick<ReturnType<typeof makeServer>, "closeIdle" | "server">,
  drain: Drain["Service"],
  options: ServerOptions
) {
  yield* drain.begin
  yield* Effect.logInfo("stopping")
  let open = true
  server.once("close", () => void (open = false))
  yield* Effect.sleep(Duration.millis(options.shutdownDrainMs))
  closeIdle()
  server.close()
  const closed = Effect.callback<void>((resume) => {
    if (!open) return resume(Effect.void)
    server.once("close", () => resume(Effect.void))
  })
  const done = yield* Effect.timeoutOption(closed, Duration.millis(options.shutdownGraceMs))
  if (done._tag === "Some") return
  yield* Effect.logWarning("shutdown grace expired, aborting remaining requests")
  yield* drain.cut
  yield* Effect.timeoutOption(closed, abortTimeout)
})

/** Serves the app, and provides the `HttpServer`, so that a caller can read its address. */
export const layer = (options: ServerOptions) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const drain = yield* Drain
      const metrics = yield* Metrics
      const run = Effect.runSyncWith(yield* Effect.context<never>())
      const made = makeServer(options, yield* ClientTimeouts, {
        draining: drain.draining,
        malformed: (reason) => run(metrics.malformed(reason))
      })
      const { connections, newConnections, server } = made
      yield* metrics.probe({
        name: "tollgate_connections",
        help: "Connections of clients that are open",
        read: Effect.sync(() => connections.open)
      })
      yield* metrics.probe({
        name: "tollgate_connections_cut",
        help: "Connections cut since the start because too many were open",
        type: "counter",
        read: Effect.sync(() => connections.cut)
      })
      yield* metrics.probe({
        name: "tollgate_connections_delayed",
        help: "Connections read late since the start because their address had opened too many at once",
        type: "counter",
        read: Effect.sync(() => newConnections.delayed)
      })
      const freeWork = yield* FreeWork
      yield* metrics.probe({
        name: "tollgate_delayed_refusals",
        help: "Refusals that wait: their keys kept sending requests before their Retry-After was over",
        read: Effect.sync(() => freeWork.waiting)
      })
      // In its own fiber, because the fiber that gets the stop is interrupted and cannot wait.
      const stopping = Effect.flatMap(Effect.forkDetach(stop(made, drain, options)), Fiber.join)
      // Built last, so it ends first: the app still works while it drains.
      return Layer.effectDiscard(Effect.addFinalizer(() => stopping)).pipe(
        Layer.provideMerge(HttpServer.serve(yield* makeApp(options))),
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
  ).pipe(
    Layer.provide(Readiness.layer),
    Layer.provide(FailureLog.layer),
    Layer.provide(
      Tarpit.layer({
        ...options.bounds.anonymousRefusals,
        rowsPerMinute: options.bounds.anonymousRowsPerMinute
      })
    ),
    Layer.provide(RequestBodies.layer({ maxBytes: options.bounds.requestBodiesMaxBytes })),
    Layer.provide(FreeWork.layer())
  )
