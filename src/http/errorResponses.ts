/**
 * The one table from `GatewayError` to an HTTP response. A new error does not compile until it has a response here. No
 * response contains a cause.
 */
import { Match } from "effect"
import type { BudgetExhausted, GatewayError, RateLimited } from "../domain/Errors.ts"
import type { Period } from "../domain/Limits.ts"

export interface ErrorResponse {
  readonly status: number
  readonly type: string
  readonly message: string
  readonly headers?: { readonly [name: string]: string }
}

const plural = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`

const rateFaces = {
  requests: { type: "rate_limit_exceeded", what: (value) => `${plural(value, "request")} per minute` },
  tokens: { type: "token_limit_exceeded", what: (value) => `${plural(value, "token")} per minute` },
  concurrency: {
    type: "concurrency_limit_exceeded",
    what: (value) => `${plural(value, "request")} at a time`
  }
} satisfies {
  [L in RateLimited["limit"]]: { readonly type: string; readonly what: (value: number) => string }
}

const rateLimited = (error: RateLimited): ErrorResponse => {
  const face = rateFaces[error.limit]
  return {
    status: 429,
    type: face.type,
    message: `limit of ${face.what(error.value)} reached`,
    headers: { "retry-after": String(error.retryAfterS) }
  }
}

const budgetOf = { day: "daily", month: "monthly", total: "total" } as const satisfies Record<Period, string>

const budgetExhausted = (error: BudgetExhausted): ErrorResponse => ({
  status: 429,
  type: "budget_exceeded",
  message: `${budgetOf[error.period]} budget of ${plural(error.value, "token")} is spent`,
  // openai-node would wait for the whole Retry-After, which can be hours.
  headers: { "retry-after": String(error.retryAfterS), "x-should-retry": "false" }
})

const retryAfter = (seconds: number | undefined) =>
  seconds === undefined ? {} : { headers: { "retry-after": String(seconds) } }

const badGateway = (retryAfterS: number | undefined): ErrorResponse => ({
  status: 502,
  type: "bad_gateway",
  message: "model backend unavailable",
  ...retryAfter(retryAfterS)
})

export const internalError: ErrorResponse = { status: 500, type: "internal_error", message: "internal error" }

export const toErrorResponse: (error: GatewayError) => ErrorResponse = Match.type<GatewayError>().pipe(
  Match.tagsExhaustive({
    BadRequest: (error): ErrorResponse => ({ status: 400, type: "invalid_request", message: error.detail }),
    Unauthorized: (): ErrorResponse => ({
      status: 401,
      type: "unauthorized",
      message: "unauthorized",
      headers: { "www-authenticate": "Bearer" }
    }),
    Forbidden: (): ErrorResponse => ({ status: 403, type: "forbidden", message: "forbidden" }),
    PayloadTooLarge: (error): ErrorResponse => ({
      status: 413,
      type: "payload_too_large",
      message: `request body is larger than ${error.limitBytes} bytes`
    }),
    RateLimited: rateLimited,
    FreeWorkExhausted: (error): ErrorResponse => ({
      status: 429,
      type: "rate_limit_exceeded",
      message: `limit of ${error.value} unmetered or refused requests per second reached`,
      headers: { "retry-after": String(error.retryAfterS) }
    }),
    BudgetExhausted: budgetExhausted,
    CapacityExceeded: (error): ErrorResponse => ({
      status: 429,
      type: "capacity_exceeded",
      message: "too many requests wait for the model server",
      headers: { "retry-after": String(error.retryAfterS) }
    }),
    CircuitOpen: (error): ErrorResponse => badGateway(error.retryAfterS),
    BackendFailed: (error): ErrorResponse => badGateway(error.retryAfterS),
    Unavailable: (error): ErrorResponse => ({
      status: 503,
      type: "service_unavailable",
      message: "service temporarily unavailable",
      ...retryAfter(error.retryAfterS)
    }),
    ShuttingDown: (): ErrorResponse => ({
      status: 503,
      type: "service_unavailable",
      message: "service temporarily unavailable",
      ...retryAfter(1)
    })
  })
)
