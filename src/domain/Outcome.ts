/**
 * The endings of a request: the status that the client gets and the public type of the error. Every ending is one of
 * these, for answers, Node's parser, the audit log and crash recovery.
 */
export interface Outcome {
  readonly status: number
  /** the public type of the error; absent on success */
  readonly type?: string
}

export const outcomes = {
  answered: { status: 200 },

  invalidRequest: { status: 400, type: "invalid_request" },
  /** the prompt is longer than the context window of its model */
  contextExceeded: { status: 400, type: "context_length_exceeded" },
  unauthorized: { status: 401, type: "unauthorized" },
  forbidden: { status: 403, type: "forbidden" },
  /** the request did not arrive in time */
  requestTimeout: { status: 408, type: "invalid_request" },
  payloadTooLarge: { status: 413, type: "payload_too_large" },
  expectationFailed: { status: 417, type: "invalid_request" },
  upgradeRequired: { status: 426, type: "invalid_request" },
  requestsLimited: { status: 429, type: "rate_limit_exceeded" },
  tokensLimited: { status: 429, type: "token_limit_exceeded" },
  concurrencyLimited: { status: 429, type: "concurrency_limit_exceeded" },
  budgetExceeded: { status: 429, type: "budget_exceeded" },
  capacityExceeded: { status: 429, type: "capacity_exceeded" },
  headersTooLarge: { status: 431, type: "invalid_request" },
  /** the client left; only the audit log has this status */
  clientLeft: { status: 499, type: "client_closed_request" },

  internalError: { status: 500, type: "internal_error" },
  /** the process of the request died, and another one closed its intent */
  aborted: { status: 500, type: "aborted" },
  badGateway: { status: 502, type: "bad_gateway" },
  unavailable: { status: 503, type: "service_unavailable" }
} as const satisfies { readonly [name: string]: Outcome }
