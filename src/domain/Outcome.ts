/**
 * How a request can end: the status the client is told and the public type of its error. Every ending of the gateway is one
 * of these, whoever says it: answers, Node's parser, the audit log and crash recovery.
 */
export interface Outcome {
  readonly status: number
  /** the error's public type; absent when all went well */
  readonly type?: string
}

export const outcomes = {
  answered: { status: 200 },

  invalidRequest: { status: 400, type: "invalid_request" },
  unauthorized: { status: 401, type: "unauthorized" },
  forbidden: { status: 403, type: "forbidden" },
  /** the request did not arrive in time */
  requestTimeout: { status: 408, type: "invalid_request" },
  payloadTooLarge: { status: 413, type: "payload_too_large" },
  expectationFailed: { status: 417, type: "invalid_request" },
  requestsLimited: { status: 429, type: "rate_limit_exceeded" },
  tokensLimited: { status: 429, type: "token_limit_exceeded" },
  concurrencyLimited: { status: 429, type: "concurrency_limit_exceeded" },
  budgetExceeded: { status: 429, type: "budget_exceeded" },
  capacityExceeded: { status: 429, type: "capacity_exceeded" },
  headersTooLarge: { status: 431, type: "invalid_request" },
  /** the client did not wait for its answer; nobody is told this status, it stands in the audit log */
  clientLeft: { status: 499, type: "client_closed_request" },

  internalError: { status: 500, type: "internal_error" },
  /** the process of the request died; another one closed its intent */
  aborted: { status: 500, type: "aborted" },
  badGateway: { status: 502, type: "bad_gateway" },
  unavailable: { status: 503, type: "service_unavailable" }
} as const satisfies { readonly [name: string]: Outcome }
