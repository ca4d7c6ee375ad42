/** Bodies and headers of all responses. No header of the backend is copied. */
import { HttpServerResponse } from "effect/http"
import { bindingBudget, type Headroom } from "../domain/Limits.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { errorBody, type ErrorResponse } from "./errors/errorResponses.ts"

/** A duration as OpenAI writes it in these headers: `0s`, `59s`, `1m0s`. Rounded up, so that no client returns too early. */
const durationOf = (ms: number): string => {
  const seconds = Math.ceil(ms / 1000)
  return seconds < 60 ? `${seconds}s` : `${Math.floor(seconds / 60)}m${seconds % 60}s`
}

const limitHeaders = (headroom: Headroom): Record<string, string> => {
  const binding = bindingBudget(headroom)
  return {
    "x-ratelimit-limit-requests": String(headroom.requests.limit),
    "x-ratelimit-remaining-requests": String(headroom.requests.remaining),
    "x-ratelimit-reset-requests": durationOf(headroom.resets.requestsMs),
    "x-ratelimit-limit-tokens": String(headroom.tokens.limit),
    "x-ratelimit-remaining-tokens": String(headroom.tokens.remaining),
    "x-ratelimit-reset-tokens": durationOf(headroom.resets.tokensMs),
    ...(binding === undefined
      ? {}
      : {
          "x-budget-period": binding.period,
          "x-budget-scope": binding.scope,
          "x-budget-tokens-limit": String(binding.left.limit),
          "x-budget-tokens-remaining": String(binding.left.remaining),
          "x-budget-reset": String(headroom.resets.budgetsS[binding.period])
        })
  }
}

/** Headers of every answer. Those of the limits are there when the caller is known and its limits could be read. */
export const headersOf = (context: RequestContext): Record<string, string> => ({
  "x-request-id": context.arrival.requestId,
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  ...(context.relaxed.length === 0 ? {} : { "x-schema-relaxed": context.relaxed.join(", ") }),
  ...(context.numCtx === undefined ? {} : { "x-num-ctx": context.numCtx }),
  ...((context.truncated ?? context.isLikelyCut) ? { "x-prompt-truncated": "likely" } : {}),
  ...(context.queuedMs === undefined ? {} : { "x-queue-wait-ms": String(context.queuedMs) }),
  ...(context.listExpired ? { "x-model-list": "expired" } : {}),
  ...(context.headroom === undefined ? {} : limitHeaders(context.headroom))
})

export const jsonType = "application/json; charset=utf-8"

/** `json` is the body as text. */
export const respondText = (context: RequestContext, json: string): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.text(json, {
    contentType: jsonType,
    headers: headersOf(context)
  })

export const respondJson = (context: RequestContext, body: unknown): HttpServerResponse.HttpServerResponse =>
  respondText(context, JSON.stringify(body))

export const respondError = (
  context: RequestContext,
  error: ErrorResponse
): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.text(JSON.stringify(errorBody(error, context.arrival.requestId)), {
    status: error.status,
    contentType: "application/json",
    headers: { ...headersOf(context), ...error.headers }
  })
