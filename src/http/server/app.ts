/** Every request enters here: the allow-list on the raw target first, then the route's own handler. */
import type { BlockList } from "node:net"
import { IncomingMessage, ServerResponse } from "node:http"
import * as NodeHttpServerRequest from "@effect/platform-node/NodeHttpServerRequest"
import { Effect } from "effect"
import { HttpServerRequest } from "effect/http"
import { BadRequest, Forbidden } from "../../domain/Errors.ts"
import { RequestContext } from "../../request/RequestContext.ts"
import { type Route, routeOf } from "../routes.ts"
import { makeAnswer } from "../answer.ts"
import { arrivalOf } from "../arrival.ts"
import { desk } from "../Desk.ts"
import { makeEndpoint } from "../endpoint.ts"
import { toErrorResponse } from "../errorResponses.ts"
import { isHosted } from "./framing.ts"
import { withLastCatch } from "../lastCatch.ts"
import { type InferenceOptions, makeInference } from "../handle.ts"
import { makeList } from "../lists.ts"
import { mayReadMetrics } from "../metricsAccess.ts"
import { healthz, metrics, readyz } from "../health.ts"
import { waitForTurn } from "./pipelining.ts"
import { makePage, respondPage } from "../playground/page.ts"
import { receiveBody } from "./ReceivedBody.ts"
import { respondError } from "../respond.ts"

export interface AppOptions extends InferenceOptions {
  readonly trustedProxies: BlockList
  /** `PLAYGROUND_ENABLED`; without it the page is a blocked path */
  readonly playground: boolean
}

const forbiddenPath = Effect.fail(new Forbidden({ what: "path" }))
const unhosted = Effect.fail(new BadRequest({ detail: "Host: expected exactly one" }))

type OperationsPage = Extract<Route, { readonly handler: "operations" }>["page"]

/** The app on the services it is made among; a request brings nothing but itself. */
export const makeApp = Effect.fnUntraced(function* (options: AppOptions) {
  const stand = yield* desk
  const endpoint = makeEndpoint(stand)
  const answer = makeAnswer(stand)
  const { embedded, generated, shown } = makeInference(stand, answer, options)
  const list = makeList(stand, answer)
  const page = options.playground ? makePage() : undefined

  /**
   * Health, metrics and the playground page leave no audit row, so they have a way out of their own. A refused
   * `/metrics` and a playground that is off are blocked paths.
   */
  const operations = (context: RequestContext, incoming: IncomingMessage, name: OperationsPage) => {
    switch (name) {
      case "healthz":
        return healthz(context)
      case "readyz":
        return Effect.catch(readyz(stand.readiness, context), (error) =>
          Effect.succeed(respondError(context, toErrorResponse(error)))
        )
      case "metrics":
        return mayReadMetrics(incoming) ? metrics(stand.metrics, context) : endpoint(context, forbiddenPath)
      case "playground":
        return page === undefined
          ? endpoint(context, forbiddenPath)
          : Effect.succeed(respondPage(context, page))
    }
  }

  const routed = Effect.fnUntraced(function* (request: HttpServerRequest.HttpServerRequest) {
    const [incoming, response] = [
      NodeHttpServerRequest.toIncomingMessage(request),
      NodeHttpServerRequest.toServerResponse(request)
    ]
    if (!(incoming instanceof IncomingMessage) || !(response instanceof ServerResponse)) {
      return yield* Effect.die("HTTP/1.1 only")
    }
    const received = receiveBody(incoming, response, stand.bodies.early())
    yield* waitForTurn(incoming)
    const context = new RequestContext(
      arrivalOf(incoming, stand.clock.currentTimeMillisUnsafe(), options.trustedProxies),
      stand.nowMs()
    )
    const route = routeOf(incoming.method ?? "", incoming.url ?? "")
    if (route !== undefined && !isHosted(incoming)) return yield* endpoint(context, unhosted)
    switch (route?.handler) {
      case undefined:
        return yield* endpoint(context, forbiddenPath)
      case "generate":
        return yield* endpoint(context, generated(context, incoming, response, received, route.dialect))
      case "embed":
        return yield* endpoint(context, embedded(context, incoming, response, received, route.dialect))
      case "show":
        return yield* endpoint(context, shown(context, incoming, response, received, route.dialect))
      case "list":
        return yield* endpoint(context, list(context, incoming, response, route.list))
      case "operations":
        return yield* operations(context, incoming, route.page)
    }
  })

  return Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) => withLastCatch(routed(request)))
})
