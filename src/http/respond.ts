/** The bodies and headers every response of the gateway is made of. Nothing of the backend's is ever copied. */
import { HttpServerResponse } from "effect/http"
import { bindingPeriod, type Headroom } from "../domain/Limits.ts"
import type { Exchange } from "../request/RequestContext.ts"
import type { Face } from "./errorResponses.ts"

export interface ErrorBody {
  readonly error: { readonly message: string; readonly type: string; readonly code: number }
  readonly request_id: string
}

export const errorBody = (face: Face, requestId: string): ErrorBody => ({
  error: { message: face.message, type: face.type, code: face.status },
  request_id: requestId
})

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
export const headersOf = (exchange: Exchange): Record<string, string> => ({
  "x-request-id": exchange.arrival.requestId,
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  ...(exchange.relaxed.length === 0 ? {} : { "x-schema-relaxed": exchange.relaxed.join(", ") }),
  ...(exchange.queuedMs === undefined ? {} : { "x-queue-wait-ms": String(exchange.queuedMs) }),
  ...(exchange.headroom === undefined ? {} : limitHeaders(exchange.headroom))
})

export const jsonType = "application/json; charset=utf-8"

/** `json` is the body as text. */
export const respondText = (exchange: Exchange, json: string): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.text(json, {
    contentType: jsonType,
    headers: headersOf(exchange)
  })

export const respondJson = (exchange: Exchange, body: unknown): HttpServerResponse.HttpServerResponse =>
  respondText(exchange, JSON.stringify(body))

export const respondError = (exchange: Exchange, face: Face): HttpServerResponse.HttpServerResponse =>
  HttpServerResponse.text(JSON.stringify(errorBody(face, exchange.arrival.requestId)), {
    status: face.status,
    contentType: "application/json",
    headers: { ...headersOf(exchange), ...face.headers }
  })
