/** The errors in `openapi.json`. Each is an example that the table of error responses made from a real error. */
import { Schema } from "effect"
import {
  BackendFailed,
  BadRequest,
  BudgetExhausted,
  CapacityExceeded,
  CircuitOpen,
  Forbidden,
  FreeWorkExhausted,
  type GatewayError,
  PayloadTooLarge,
  RateLimited,
  ShuttingDown,
  Unauthorized,
  Unavailable
} from "../../src/domain/Errors.ts"
import { type ErrorResponse, internalError, toErrorResponse } from "../../src/http/errors/errorResponses.ts"
import { messagesError } from "../../src/http/dialect/messages/surface.ts"
import { overflowDetail } from "../../src/domain/promptWindow.ts"
import { noResets } from "../../src/domain/Limits.ts"

const headroom = {
  requests: { limit: 60, remaining: 0 },
  tokens: { limit: 100_000, remaining: 0 },
  budgets: {},
  resets: noResets
}
const reached = { value: 100_000, retryAfterS: 1, headroom }

type Samples = {
  readonly [Tag in GatewayError["_tag"]]: ReadonlyArray<Extract<GatewayError, { readonly _tag: Tag }>>
}

/** An error that is missing here does not compile. */
export const samples: Samples = {
  BadRequest: [
    new BadRequest({ detail: "model: missing" }),
    new BadRequest({ detail: overflowDetail(4096, 5000), overflow: true })
  ],
  Unauthorized: [new Unauthorized({})],
  Forbidden: [new Forbidden({ what: "model not allowed" })],
  PayloadTooLarge: [new PayloadTooLarge({ limitBytes: 262_144 })],
  RateLimited: [
    new RateLimited({ ...reached, limit: "requests", value: 60 }),
    new RateLimited({ ...reached, limit: "tokens" }),
    new RateLimited({ ...reached, limit: "concurrency", value: 4 })
  ],
  FreeWorkExhausted: [new FreeWorkExhausted({ value: 100, retryAfterS: 1 })],
  BudgetExhausted: [
    new BudgetExhausted({ ...reached, scope: "key", period: "day", isSpent: true }),
    new BudgetExhausted({ ...reached, scope: "tenant", period: "month", isSpent: false })
  ],
  CapacityExceeded: [new CapacityExceeded({ retryAfterS: 1 })],
  CircuitOpen: [new CircuitOpen({ retryAfterS: 1 })],
  BackendFailed: [new BackendFailed({ fault: "cut" })],
  Unavailable: [new Unavailable({ gate: "Audit", retryAfterS: 1, cause: undefined })],
  ShuttingDown: [new ShuttingDown({})]
}

/** The responses of all errors. */
export const errorResponses: ReadonlyArray<ErrorResponse> = [
  ...Object.values(samples).flatMap((errors) => errors.map(toErrorResponse)),
  internalError
]

const bodyOf = (typeOf: (error: ErrorResponse) => string) => ({
  error: Schema.Struct({
    message: Schema.String,
    type: Schema.Literals([...new Set(errorResponses.map(typeOf))]),
    code: Schema.Int.annotate({ description: "the HTTP status" })
  }).annotate({ additionalProperties: false }),
  request_id: Schema.String.annotate({ format: "uuid", description: "the same as in X-Request-ID" })
})

export const ErrorBody = Schema.Struct(bodyOf(({ type }) => type)).annotate({ additionalProperties: false })

/** The same in the words of Anthropic's clients. */
export const MessagesErrorBody = Schema.Struct({
  type: Schema.Literal("error"),
  ...bodyOf((error) => messagesError(error, "").error.type)
}).annotate({ additionalProperties: false })

/** Each status with its name in the document and its meaning. */
export const statuses: {
  readonly [status: number]: { readonly name: string; readonly description: string }
} = {
  400: {
    name: "BadRequest",
    description: "The request itself is wrong; the message names the field and what is expected."
  },
  401: {
    name: "Unauthorized",
    description: "No key, or one that is malformed, unknown, expired, disabled or revoked: all alike."
  },
  403: {
    name: "Forbidden",
    description: "A blocked path, a scope the key lacks, a model outside its set: all alike."
  },
  413: { name: "TooLarge", description: "The body is larger than MAX_REQUEST_BODY_BYTES." },
  429: {
    name: "TooMany",
    description: "A limit or a budget is reached. For a spent budget, `x-should-retry` is `false`."
  },
  500: { name: "Internal", description: "A defect of the gateway." },
  502: { name: "BadGateway", description: "The model server failed, or the circuit breaker is open." },
  503: {
    name: "Unavailable",
    description: "A part of the gateway that must decide does not answer, so the request is refused."
  }
}
