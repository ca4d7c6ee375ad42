/**
 * The last error handler, around the whole app. It turns a defect outside the endpoints (arrival, routing, health,
 * metrics, playground), or in the answer to a defect, into a 500 with an id that the log has too. It does not change an
 * interruption.
 */
import { Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { jsonText } from "../domain/json.ts"
import { RequestIds } from "../infra/RequestIds.ts"
import { errorBody, internalError } from "./errors/errorResponses.ts"

const respondDefect = Effect.fnUntraced(function* (defect: unknown) {
  const requestId = (yield* RequestIds)()
  yield* Effect.annotateLogs(Effect.logError("defect outside an endpoint", defect), "request_id", requestId)
  return HttpServerResponse.text(jsonText(errorBody(internalError, requestId)), {
    status: internalError.status,
    contentType: "application/json",
    headers: { "x-request-id": requestId, "cache-control": "no-store", "x-content-type-options": "nosniff" }
  })
})

export const withLastCatch = <E, R>(
  app: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>
): Effect.Effect<HttpServerResponse.HttpServerResponse, E, R> => Effect.catchDefect(app, respondDefect)
