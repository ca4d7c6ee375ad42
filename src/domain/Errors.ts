/**
 * All errors of a request.
 *
 * Ports fail with these errors only, so a database or socket error cannot reach a route: the layer that meets it must
 * translate it. Only `http/errors/errorResponses.ts` turns an error into a response. Causes are for the log and are never
 * shown.
 */
import { Data, Result } from "effect"
import type { BudgetScope, Headroom, Period } from "./Limits.ts"

/** The gates: the parts that must decide before a request may reach the backend. */
export const gates = ["KeyStore", "Discovery", "Limiter", "Budget", "Queue", "Audit"] as const
export type Gate = (typeof gates)[number]

/** 400: the request itself is wrong. `detail` describes only the request and is shown as it is. */
export class BadRequest extends Data.TaggedError("BadRequest")<{
  readonly detail: string
  /** the prompt does not fit in the context window: the error has a type of its own */
  readonly overflow?: boolean
  /** it asks for a websocket: on this status Codex goes on by HTTP at once */
  readonly upgrade?: boolean
}> {}

/** What a function decides about a request without waiting for anything. */
export type Decided<A> = Result.Result<A, BadRequest>

/** The decision to refuse a request with a 400. */
export const refuse = (detail: string): Decided<never> => Result.fail(new BadRequest({ detail }))

/**
 * A decision in steps. The generator function is made once: V8 keeps the hidden class of each in old space, and with it what the
 * function closes over, until the next full collection (`bench/RESULTS.md`).
 */
export const decide =
  <Args extends ReadonlyArray<unknown>, A>(
    steps: (...args: Args) => Generator<Result.Result<unknown, BadRequest>, A, never>
  ) =>
  (...args: Args): Decided<A> =>
    Result.gen(() => steps(...args))

/** 401: no usable key. The reasons are for the audit row only. */
export class Unauthorized extends Data.TaggedError("Unauthorized")<{
  /** a key whose prefix is known, and which is disabled, revoked or expired, or whose tenant is disabled */
  readonly ended?: string
}> {}

export const forbidden = [
  "path",
  "scope",
  "model not allowed",
  "model not installed",
  "model list expired"
] as const

/** 403: the path, scope or model is not allowed. `what` is for the audit row only. */
export class Forbidden extends Data.TaggedError("Forbidden")<{
  readonly what: (typeof forbidden)[number]
  /** what a client may have meant by a path */
  readonly hint?: string | undefined
}> {}

/** 413: the body is larger than `MAX_REQUEST_BODY_BYTES`. */
export class PayloadTooLarge extends Data.TaggedError("PayloadTooLarge")<{ readonly limitBytes: number }> {}

/** 429 from the Limiter: one of the three per-minute or concurrency limits. */
export class RateLimited extends Data.TaggedError("RateLimited")<{
  /** `users`: the key has too many end users with limits of their own at the same time */
  readonly limit: "requests" | "tokens" | "concurrency" | "users"
  /** absent: the key's */
  readonly scope?: "user"
  readonly value: number
  readonly retryAfterS: number
  readonly headroom?: Headroom
}> {}

/** 429: the key made more lists and refused requests than it may in a second (`http/FreeWork.ts`). */
export class FreeWorkExhausted extends Data.TaggedError("FreeWorkExhausted")<{
  readonly value: number
  readonly retryAfterS: number
}> {}

/** 429 from the Budget: the period's tokens are spent, or held by requests that run. */
export class BudgetExhausted extends Data.TaggedError("BudgetExhausted")<{
  readonly scope: BudgetScope
  readonly period: Period
  readonly value: number
  /** false: the requests that run hold what is left, and may give it back unused at any moment */
  readonly isSpent: boolean
  readonly retryAfterS: number
  readonly headroom: Headroom
}> {}

/** 429: too many requests wait for the backend, or this one has waited for too long. */
export class CapacityExceeded extends Data.TaggedError("CapacityExceeded")<{
  /** whole seconds, at least 1: the time that the queue needs at its present rate */
  readonly retryAfterS: number
}> {}

/** The ways in which a backend call can fail. Log, audit row and breaker use them. */
export type BackendFault =
  /** no connection could be made, so the request was not sent */
  | "unreachable"
  | "timeout"
  | "status"
  | "busy"
  | "redirect"
  | "protocol"
  | "reported"
  /** ended cleanly before its first frame */
  | "empty"
  /** the request was at fault, and the backend reported it after the first frame */
  | "refused"
  /** the connection broke after the request was sent */
  | "cut"

/** 502: the circuit breaker is open, so the backend was not called. It always has a `Retry-After`. */
export class CircuitOpen extends Data.TaggedError("CircuitOpen")<{ readonly retryAfterS: number }> {}

/** 502: the backend was called and failed. Its text is never shown. */
export class BackendFailed extends Data.TaggedError("BackendFailed")<{
  readonly fault: BackendFault
  readonly retryAfterS?: number
  readonly cause?: unknown
}> {}

/** 503: `gate` could not decide, so the request is refused. */
export class Unavailable extends Data.TaggedError("Unavailable")<{
  readonly gate: Gate
  readonly retryAfterS?: number
  /** too many requests at once; no part has failed */
  readonly crowded?: boolean
  readonly cause: unknown
}> {}

/** 503: the process stops and its grace has expired. */
export class ShuttingDown extends Data.TaggedError("ShuttingDown")<{}> {}

export type GatewayError =
  | BadRequest
  | Unauthorized
  | Forbidden
  | PayloadTooLarge
  | RateLimited
  | FreeWorkExhausted
  | BudgetExhausted
  | CapacityExceeded
  | CircuitOpen
  | BackendFailed
  | Unavailable
  | ShuttingDown
