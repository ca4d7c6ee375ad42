/** Bodies and headers of all responses. No header of the backend is copied. */
import { HttpServerResponse } from "effect/http"
import { jsonText } from "../domain/json.ts"
import { bindingBudget, type Headroom } from "../domain/Limits.ts"
import { isLikelyCut } from "../domain/promptWindow.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { errorBody, type ErrorResponse } from "./errors/errorResponses.ts"

/** A duration as OpenAI writes it in these headers: `0s`, `59s`, `1m0s`. Rounded up, so that no client returns too early. */
const durationOf = (ms: number): string => {
  const seconds = Math.ceil(ms / 1000)
  return seconds < 60 ? `${seconds}s` : `${Math.floor(seconds / 60)}m${seconds % 60}s`
}

const addLimits = (headers: Record<string, string>, headroom: Headroom, model: string | undefined): void => {
  headers["x-ratelimit-limit-requests"] = String(headroom.requests.limit)
  headers["x-ratelimit-remaining-requests"] = String(headroom.requests.remaining)
  headers["x-ratelimit-reset-requests"] = durationOf(headroom.resets.requestsMs)
  headers["x-ratelimit-limit-tokens"] = String(headroom.tokens.limit)
  headers["x-ratelimit-remaining-tokens"] = String(headroom.tokens.remaining)
  headers["x-ratelimit-reset-tokens"] = durationOf(headroom.resets.tokensMs)
  const binding = bindingBudget(headroom)
  if (model !== undefined && (headroom.ofModel === true || binding?.scope === "model"))
    headers["x-ratelimit-model"] = model
  if (binding === undefined) return
  headers["x-budget-period"] = binding.period
  headers["x-budget-scope"] = binding.scope
  headers["x-budget-tokens-limit"] = String(binding.left.limit)
  headers["x-budget-tokens-remaining"] = String(binding.left.remaining)
  headers["x-budget-reset"] = String(headroom.resets.budgetsS[binding.period])
}

/** Headers of every answer. Those of the limits are there when the caller is known and its limits could be read. */
export const headersOf = (context: RequestContext): Record<string, string> => {
  const headers: Record<string, string> = {
    "x-request-id": context.arrival.requestId,
    "cache-control": "no-store",
    "x-content-type-options": "nosniff"
  }
  const { route } = context
  const { caller, place, request: asked, window } = context.cost.facts
  if (route?.surface.idHeader !== undefined) headers[route.surface.idHeader] = context.arrival.requestId
  if (asked?.loweredTo !== undefined) headers["x-max-tokens"] = String(asked.loweredTo)
  if (asked?.relaxed !== undefined && asked.relaxed.length > 0)
    headers["x-schema-relaxed"] = asked.relaxed.join(", ")
  if (asked?.askedNumCtx !== undefined && asked.askedNumCtx !== window)
    headers["x-num-ctx"] = String(window ?? "default")
  const isCut = context.truncated ?? (asked !== undefined && isLikelyCut(asked, window))
  if (isCut) headers["x-prompt-truncated"] = "likely"
  if (context.queuedMs !== undefined) headers["x-queue-wait-ms"] = String(context.queuedMs)
  if (place?.loaded !== undefined) headers["x-model-loaded"] = String(place.loaded)
  if (context.listed?.isExpired === true) headers["x-model-list"] = "expired"
  if (context.listed !== undefined && caller !== undefined)
    headers["x-key-scopes"] = [...caller.scopes].join(", ")
  if (context.headroom !== undefined) addLimits(headers, context.headroom, context.model)
  return headers
}

export const jsonType = "application/json; charset=utf-8"

export const respondJson = (context: RequestContext, body: unknown): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.text(jsonText(body), { contentType: jsonType, headers: headersOf(context) })

export const respondError = (
  context: RequestContext,
  error: ErrorResponse
): HttpServerResponse.HttpServerResponse => {
  const bodyOf = context.route?.surface.errorBody ?? errorBody
  return HttpServerResponse.text(jsonText(bodyOf(error, context.arrival.requestId)), {
    status: error.status,
    contentType: "application/json",
    headers: { ...headersOf(context), ...error.headers }
  })
}
