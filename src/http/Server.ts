/**
 * The listening socket. It sets all limits of Node explicitly. Requests that Node refuses get the common error shape.
 */
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Duration, Effect, Fiber, Layer } from "effect"
import { HttpMiddleware, HttpServer } from "effect/http"
import { Metrics } from "../observability/Metrics.ts"
import { type AppOptions, makeApp } from "./app.ts"
import { FailureLog } from "../observability/failureLog.ts"
import { Drain } from "../infra/Drain.ts"
import { type Connections, limitConnections } from "./server/connections.ts"
import { FreeWork } from "./FreeWork.ts"
import { isWithin } from "./server/addresses.ts"
import { Readiness } from "./health.ts"
import { ClientTimeouts, type ClientTimeoutsMs } from "./server/ClientTimeouts.ts"
import { GatewayServer, type GatewayServerOptions } from "./server/GatewayServer.ts"
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
  }
}

/** The limit of Node itself is so much higher, so that `connections.ts` can make room. */
const spareConnections = 256
/** A connection ends after this many requests. */
const maxRequests = 10_000

const makeServer = (
  { bounds, clientStallTimeoutMs, trustedProxies }: ServerOptions,
  timeouts: ClientTimeoutsMs,
  watchers: Pick<GatewayServerOptions, "isDraining" | "refused">
): { readonly server: GatewayServer; readonly connections: Connections } => {
  const server = new GatewayServer({
    ...watchers,
    headersTimeout: timeouts.head,
    requestTimeout: timeouts.request,
    connectionsCheckingInterval: timeouts.check,
    keepAliveTimeout: timeouts.idle,
    maxHeaderSize: 16_384,
    noDelay: true
  })
  server.maxConnections = bounds.connections + spareConnections
  server.maxRequestsPerSocket = maxRequests
  const connections = limitConnections(server, {
    max: bounds.connections,
    perAddress: bounds.connectionsPerAddress,
    newPerAddress: bounds.newConnections,
    isExempt: (address) => isWithin(trustedProxies, address),
    stallMs: clientStallTimeoutMs
  })
  return { server, connections }
}

/** How long an aborted request may take to send its last line and to be settled and audited. */
const abortTimeout = Duration.seconds(3)

/** The steps of a stop, each with a bound. Requests that still run after it are interrupted. */
const stop = Effect.fnUntraced(function* (
  server: GatewayServer,
  drain: Drain["Service"],
  options: ServerOptions
) {
  yield* drain.begin
  yield* Effect.logInfo("stopping")
  let open = true
  server.once("close", () => void (open = false))
  yield* Effect.sleep(Duration.millis(options.shutdownDrainMs))
  server.closeIdle()
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

/** What the app needs of the edge, without its sockets. */
export const layerParts = (bounds: ServerOptions["bounds"]) =>
  Layer.mergeAll(
    Readiness.layer,
    FailureLog.layer,
    Tarpit.layer({ ...bounds.anonymousRefusals, rowsPerMinute: bounds.anonymousRowsPerMinute }),
    FreeWork.layer()
  )

/** Serves the app, and provides the `HttpServer`, so that a caller can read its address. */
export const layer = (options: ServerOptions) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const drain = yield* Drain
      const metrics = yield* Metrics
      const { connections, server } = makeServer(options, yield* ClientTimeouts, {
        isDraining: drain.draining,
        refused: metrics.malformed
      })
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
        read: Effect.sync(() => connections.delayed)
      })
      const freeWork = yield* FreeWork
      yield* metrics.probe({
        name: "tollgate_delayed_refusals",
        help: "Refusals that wait: their keys have used up what is not metered",
        read: Effect.sync(() => freeWork.waiting)
      })
      // In its own fiber, because the fiber that gets the stop is interrupted and cannot wait.
      const stopping = Effect.flatMap(Effect.forkDetach(stop(server, drain, options)), Fiber.join)
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
  ).pipe(Layer.provide(layerParts(options.bounds)))
