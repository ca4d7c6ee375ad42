/**
 * The one table from `GatewayError` to an HTTP response. A new error does not compile until it has a response here. No
 * response contains a cause.
 */
import { Match } from "effect"
import type { GatewayError } from "../../domain/Errors.ts"
import { type Outcome, outcomes } from "../../domain/Outcome.ts"
import type { ShownError } from "../../domain/Surface.ts"

export interface ErrorResponse extends Outcome {
  readonly type: string
  readonly message: string
  readonly headers?: { readonly [name: string]: string }
}

const limited = {
  requests: outcomes.requestsLimited,
  tokens: outcomes.tokensLimited,
  concurrency: outcomes.concurrencyLimited,
  users: outcomes.requestsLimited
}

const outcomeOf = Match.type<GatewayError>().pipe(
  Match.tagsExhaustive({
    BadRequest: ({ overflow, upgrade }) =>
      upgrade === true
        ? outcomes.upgradeRequired
        : overflow === true
          ? outcomes.contextExceeded
          : outcomes.invalidRequest,
    Unauthorized: () => outcomes.unauthorized,
    Forbidden: () => outcomes.forbidden,
    PayloadTooLarge: () => outcomes.payloadTooLarge,
    RateLimited: ({ limit }) => limited[limit],
    FreeWorkExhausted: () => outcomes.requestsLimited,
    BudgetExhausted: () => outcomes.budgetExceeded,
    CapacityExceeded: () => outcomes.capacityExceeded,
    CircuitOpen: () => outcomes.badGateway,
    BackendFailed: () => outcomes.badGateway,
    Unavailable: () => outcomes.unavailable,
    ShuttingDown: () => outcomes.unavailable
  })
)

/**
 * Claude Code would ask again for minutes without a key, and show nothing; openai-node would wait for the whole Retry-After of
 * a budget, which can be hours.
 */
const isFinal = (error: GatewayError): boolean =>
  error._tag === "Unauthorized" || (error._tag === "BudgetExhausted" && error.isSpent)

export const internalError: ErrorResponse = { ...outcomes.internalError, message: "internal error" }

export const toErrorResponse = (error: GatewayError): ErrorResponse => ({
  ...outcomeOf(error),
  message: error.message,
  headers: {
    ...(error._tag === "Unauthorized" ? { "www-authenticate": "Bearer" } : {}),
    ...("retryAfterS" in error && error.retryAfterS !== undefined
      ? { "retry-after": String(error.retryAfterS) }
      : {}),
    // A 426 must name a protocol (RFC 9110, section 15.5.22).
    ...(error._tag === "BadRequest" && error.upgrade === true
      ? { upgrade: "HTTP/1.1", connection: "upgrade" }
      : {}),
    ...(error._tag === "Forbidden" && error.told !== undefined ? { "x-hint": error.told } : {}),
    ...(isFinal(error) ? { "x-should-retry": "false" } : {})
  }
})

/** The JSON of an error, on every surface that has no other one. */
export const errorBody = (error: ShownError, requestId: string) => ({
  error: { message: error.message, type: error.type, code: error.status },
  request_id: requestId
})
