/** The entry of every request: the allow-list first, then the handler of the route. */
import type { BlockList } from "node:net"
import { IncomingMessage, ServerResponse } from "node:http"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Clock, Context, Effect, Scope } from "effect"
import { HttpServerRequest } from "effect/http"
import { BadRequest, Forbidden } from "../domain/Errors.ts"
import type { ErrorBodyForm, ExtraSurface } from "../domain/Surface.ts"
import { RequestContext } from "../request/RequestContext.ts"
import { makeRouteOf, type Route } from "./routes.ts"
import { arrivalOf } from "./arrival.ts"
import { makeEndRequest } from "./endRequest.ts"
import { toErrorResponse } from "./errors/errorResponses.ts"
import { makeHintOf } from "./hints.ts"
import { headerOf, isHosted, pathTarget } from "./server/headers.ts"
import { withLastCatch } from "./lastCatch.ts"
import type { Exchange } from "./Exchange.ts"
import { makeHandle } from "./handle.ts"
import { makeList } from "./lists.ts"
import { mayReadMetrics } from "./metricsAccess.ts"
import { healthz, metrics, Readiness, readyz, withDetails } from "./health.ts"
import { MemoryLedger } from "../memory/MemoryLedger.ts"
import type { RequestOptions } from "./readRequest.ts"
import { RequestIds } from "../infra/RequestIds.ts"
import { makeMonotonicMs } from "../infra/time.ts"
import { Metrics } from "../observability/Metrics.ts"
import { makePage, respondPage } from "./playground.ts"
import { ReceivedBody } from "./server/ReceivedBody.ts"
import { respondError } from "./respond.ts"

export interface AppOptions extends RequestOptions {
  readonly trustedProxies: BlockList
  /** `EXTRA_SURFACES`; the paths of the others are blocked paths */
  readonly extraSurfaces: ReadonlySet<ExtraSurface>
  /** `ERROR_BODIES` */
  readonly errorBodies: ErrorBodyForm
  /** `PLAYGROUND_ENABLED`; without it the page and what only it shows are blocked paths */
  readonly playground: boolean
}

const forbiddenPath = (hint?: string) => Effect.fail(new Forbidden({ what: "path", hint }))
const noWebsocket = Effect.fail(
  new BadRequest({ detail: "Upgrade: expected none, and POST: websockets are not spoken", upgrade: true })
)
const unhosted = Effect.fail(new BadRequest({ detail: "Host: expected exactly one" }))

type OperationsPage = Extract<Route, { readonly handler: "operations" }>["page"]

/** Builds the app from its services, once. */
export const makeApp = Effect.fnUntraced(function* (options: AppOptions) {
  const memory = yield* MemoryLedger
  const clock = yield* Clock.Clock
  const registry = yield* Metrics
  const readiness = yield* Readiness
  const newId = yield* RequestIds
  const nowMs = yield* makeMonotonicMs
  const endRequest = yield* makeEndRequest
  const handle = yield* makeHandle(options)
  const list = yield* makeList(options.extraSurfaces)
  const routeOf = makeRouteOf(options.extraSurfaces, options.errorBodies)
  const hintOf = makeHintOf(options.extraSurfaces)
  const page = options.playground ? makePage(options) : undefined

  /** Whether a client asks for a websocket where it could generate by HTTP. */
  const isWebsocket = (incoming: IncomingMessage): boolean =>
    incoming.method === "GET" &&
    headerOf(incoming, "upgrade")?.toLowerCase() === "websocket" &&
    routeOf("POST", incoming.url ?? "")?.handler === "generate"

  /**
   * Health, metrics and the playground have no audit row, so they are answered here. A refused `/metrics` and a
   * disabled playground are blocked paths.
   */
  const operations = (exchange: Exchange, name: OperationsPage) => {
    const { context, incoming } = exchange
    switch (name) {
      case "healthz":
        return healthz(context)
      case "readyz":
        return readyz(readiness, context).pipe(
          Effect.catch((error) => Effect.succeed(respondError(context, toErrorResponse(error)))),
          // Only for clients that may read the metrics, which say the same.
          Effect.filterOrElse(
            () => !mayReadMetrics(incoming),
            (response) => withDetails(readiness, response)
          )
        )
      case "metrics":
        return mayReadMetrics(incoming) ? metrics(registry, context) : endRequest(exchange, forbiddenPath())
      case "playground":
        return page === undefined
          ? endRequest(exchange, forbiddenPath())
          : Effect.succeed(respondPage(context, page, headerOf(incoming, "accept-encoding") ?? ""))
    }
  }

  const serve = (services: Context.Context<HttpServerRequest.HttpServerRequest | Scope.Scope>) => {
    const request = Context.get(services, HttpServerRequest.HttpServerRequest)
    const incoming = NodeHttpServerRequest.toIncomingMessage(request)
    const response = NodeHttpServerRequest.toServerResponse(request)
    if (!(incoming instanceof IncomingMessage) || !(response instanceof ServerResponse)) {
      return Effect.die("HTTP/1.1 only")
    }
    const received = new ReceivedBody(incoming, response, memory.early())
    // Everything that follows reads the path.
    incoming.url = pathTarget(incoming)
    const route = routeOf(incoming.method ?? "", incoming.url)
    const context = new RequestContext(
      arrivalOf(incoming, newId(), clock.currentTimeMillisUnsafe(), options.trustedProxies),
      nowMs(),
      route
    )
    const scope = Context.get(services, Scope.Scope)
    const exchange = { context, incoming, response, received, scope }
    if (route !== undefined && !isHosted(incoming)) return endRequest(exchange, unhosted)
    switch (route?.handler) {
      case undefined:
        return endRequest(
          exchange,
          isWebsocket(incoming) ? noWebsocket : forbiddenPath(hintOf(incoming.method ?? "", incoming.url))
        )
      case "generate":
        return endRequest(exchange, handle.generate(exchange, route.dialect))
      case "embed":
        return endRequest(exchange, handle.embed(exchange, route.dialect))
      case "count":
        return endRequest(exchange, handle.count(exchange, route.dialect))
      case "show":
        return endRequest(exchange, handle.show(exchange, route.dialect))
      case "list":
        // Only the page shows it.
        return endRequest(
          exchange,
          route.list === "usage" && page === undefined ? forbiddenPath() : list(exchange, route)
        )
      case "operations":
        return operations(exchange, route.page)
    }
  }

  // The caller runs it for each request.
  // @effect-diagnostics-next-line returnEffectInGen:off
  return withLastCatch(Effect.contextWith(serve))
})
