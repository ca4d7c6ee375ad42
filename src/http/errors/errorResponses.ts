/**
 * The one table from `GatewayError` to an HTTP response. A new error does not compile until it has a response here. No
 * response contains a cause.
 */
import { Match } from "effect"
import type { BudgetExhausted, GatewayError, RateLimited } from "../../domain/Errors.ts"
import type { BudgetScope, Period } from "../../domain/Limits.ts"
import { type Outcome, outcomes } from "../../domain/Outcome.ts"
import { hintOf } from "../../domain/refusal.ts"
import type { ShownError } from "../../domain/Surface.ts"

export interface ErrorResponse extends Outcome {
  readonly type: string
  readonly message: string
  readonly headers?: { readonly [name: string]: string }
}

const plural = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? "" : "s"}`

const limits = {
  requests: { outcome: outcomes.requestsLimited, what: (value) => `${plural(value, "request")} per minute` },
  tokens: { outcome: outcomes.tokensLimited, what: (value) => `${plural(value, "token")} per minute` },
  concurrency: {
    outcome: outcomes.concurrencyLimited,
    what: (value) => `${plural(value, "request")} at a time`
  },
  users: { outcome: outcomes.requestsLimited, what: (value) => `${plural(value, "user")} at a time` }
} satisfies {
  [L in RateLimited["limit"]]: { readonly outcome: Outcome; readonly what: (value: number) => string }
}

const ofScope = { key: "", tenant: "the tenant's ", user: "the user's " } as const satisfies Record<
  BudgetScope,
  string
>

const rateLimited = (error: RateLimited): ErrorResponse => {
  const { outcome, what } = limits[error.limit]
  return {
    ...outcome,
    message: `${ofScope[error.scope ?? "key"]}limit of ${what(error.value)} reached`,
    headers: { "retry-after": String(error.retryAfterS) }
  }
}

const budgetOf = { day: "daily", month: "monthly", total: "total" } as const satisfies Record<Period, string>

const budgetExhausted = (error: BudgetExhausted): ErrorResponse => ({
  ...outcomes.budgetExceeded,
  message: `${ofScope[error.scope]}${budgetOf[error.period]} budget of ${plural(error.value, "token")} is ${error.isSpent ? "spent" : "held by requests that run"}`,
  headers: {
    "retry-after": String(error.retryAfterS),
    // openai-node would wait for the whole Retry-After, which can be hours.
    ...(error.isSpent ? { "x-should-retry": "false" } : {})
  }
})

const retryAfter = (seconds: number | undefined) =>
  seconds === undefined ? {} : { headers: { "retry-after": String(seconds) } }

/** A 426 must name a protocol (RFC 9110, section 15.5.22). */
const websocketInstead = { upgrade: "HTTP/1.1", connection: "upgrade" }

const badGateway = (retryAfterS: number | undefined): ErrorResponse => ({
  ...outcomes.badGateway,
  message: "model backend unavailable",
  ...retryAfter(retryAfterS)
})

export const internalError: ErrorResponse = {
  ...outcomes.internalError,
  message: "internal error"
}

export const toErrorResponse: (error: GatewayError) => ErrorResponse = Match.type<GatewayError>().pipe(
  Match.tagsExhaustive({
    BadRequest: (error): ErrorResponse =>
      error.upgrade === true
        ? { ...outcomes.upgradeRequired, message: error.detail, headers: websocketInstead }
        : {
            ...(error.overflow === true ? outcomes.contextExceeded : outcomes.invalidRequest),
            message: error.detail
          },
    Unauthorized: (): ErrorResponse => ({
      ...outcomes.unauthorized,
      message: "unauthorized",
      // Claude Code would ask for minutes, and show nothing.
      headers: { "www-authenticate": "Bearer", "x-should-retry": "false" }
    }),
    Forbidden: (error): ErrorResponse => {
      const hint = hintOf(error)
      return {
        ...outcomes.forbidden,
        message: "forbidden",
        headers: hint === undefined ? {} : { "x-hint": hint }
      }
    },
    PayloadTooLarge: (error): ErrorResponse => ({
      ...outcomes.payloadTooLarge,
      message: `request body is larger than ${error.limitBytes} bytes`
    }),
    RateLimited: rateLimited,
    FreeWorkExhausted: (error): ErrorResponse => ({
      ...outcomes.requestsLimited,
      message: `limit of ${error.value} unmetered or refused requests per second reached`,
      headers: { "retry-after": String(error.retryAfterS) }
    }),
    BudgetExhausted: budgetExhausted,
    CapacityExceeded: (error): ErrorResponse => ({
      ...outcomes.capacityExceeded,
      message: "too many requests wait for the model server",
      headers: { "retry-after": String(error.retryAfterS) }
    }),
    CircuitOpen: (error): ErrorResponse => badGateway(error.retryAfterS),
    BackendFailed: (error): ErrorResponse => badGateway(error.retryAfterS),
    Unavailable: (error): ErrorResponse => ({
      ...outcomes.unavailable,
      message: "service temporarily unavailable",
      ...retryAfter(error.retryAfterS)
    }),
    ShuttingDown: (): ErrorResponse => ({
      ...outcomes.unavailable,
      message: "service temporarily unavailable",
      ...retryAfter(1)
    })
  })
)

/** The JSON of an error, on every surface that has no other one. */
export const errorBody = (error: ShownError, requestId: string) => ({
  error: { message: error.message, type: error.type, code: error.status },
  request_id: requestId
})
