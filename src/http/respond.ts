/** The bodies and headers every response of the gateway is made of. Nothing of the backend's is ever copied. */
import { HttpServerResponse } from "effect/http"
import { bindingPeriod, type Headroom } from "../domain/Limits.ts"
import type { RequestContext } from "../request/RequestContext.ts"
import { errorBody, type ErrorResponse } from "./errors/errorResponses.ts"

const limitHeaders = (headroom: Headroom): Record<string, string> => {
  const binding = bindingPeriod(headroom.budgets)
  return {
    "x-ratelimit-limit-requests": String(headroom.requests.limit),
    "x-ratelimit-remaining-requests": String(headroom.requests.remaining),
    "x-ratelimit-limit-tokens": String(headroom.tokens.limit),
    "x-ratelimit-remaining-tokens": String(headroom.tokens.remaining),
    ...(binding === undefined
      ? {}
      : {
          "x-budget-period": binding.period,
          "x-budget-tokens-remaining": String(binding.left.remaining)
        })
  }
}

/** Headers of every answer; those of the limits once the caller is known and what is left could be told. */
export const headersOf = (context: RequestContext): Record<string, string> => ({
  "x-request-id": context.arrival.requestId,
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  ...(context.relaxed.length === 0 ? {} : { "x-schema-relaxed": context.relaxed.join(", ") }),
  ...(context.queuedMs === undefined ? {} : { "x-queue-wait-ms": String(context.queuedMs) }),
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
