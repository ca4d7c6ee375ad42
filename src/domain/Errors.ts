/**
 * All errors of a request, and what may be said of each: `message` to its client, `refusal` to operators. The audit stores the
 * refusal (`detail`), and `cli/why.ts` explains it. Causes are for the log and are never shown.
 *
 * Ports fail with these errors only, so a database or socket error cannot reach a route: the layer that meets it must
 * translate it. Only `http/errors/errorResponses.ts` turns an error into a response.
 */
import { Data, Result } from "effect"
import type { BudgetScope, Headroom, Period } from "./Limits.ts"
import { outcomes } from "./Outcome.ts"
import { counted } from "./text.ts"

/** The gates: the parts that must decide before a request may reach the backend, what about, and whom each asks. */
export const gates = {
  KeyStore: { about: "the key", asks: "the database" },
  Discovery: { about: "the model", asks: "the model server" },
  Limiter: { about: "the limits", asks: "Redis" },
  Budget: { about: "the budgets", asks: "the database" },
  Queue: { about: "the place in the queue", asks: "Redis" },
  Audit: { about: "the audit row", asks: "the database" }
} as const
export type Gate = keyof typeof gates

/** Length of the longest refusal that the audit stores. */
export const maxRefusal = 256

/** Clients read "60 requests per minute", and operators "60 requests a minute". */
const limitWords = {
  requests: ["request", "per minute"],
  tokens: ["token", "per minute"],
  concurrency: ["request", "at a time"],
  /** the key has too many end users with limits of their own at the same time */
  users: ["user", "at a time"]
} as const

const ofScope = {
  key: "",
  tenant: "the tenant's ",
  user: "the user's ",
  model: "the model's "
} as const satisfies Record<BudgetScope, string>
/** The name of a budget, which is that of its option too. */
export const ofPeriod = {
  day: "daily",
  week: "weekly",
  month: "monthly",
  total: "total"
} as const satisfies Record<Period, string>

/** Whose limit it is, in a refusal. */
const named = (scope: BudgetScope, model: string | undefined): string =>
  model === undefined ? scope : `${scope} ${model}`

const backendUnavailable = "model backend unavailable"
const serviceUnavailable = "service temporarily unavailable"

/** 400: the request itself is wrong. `detail` describes only the request and is shown as it is. */
export class BadRequest extends Data.TaggedError("BadRequest")<{
  readonly detail: string
  /** the prompt does not fit in the context window: the error has a type of its own */
  readonly overflow?: boolean
  /** it asks for a websocket: on this status Codex goes on by HTTP at once */
  readonly upgrade?: boolean
}> {
  override readonly message = this.detail
  readonly refusal = `request: ${this.detail}`
}

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
}> {
  override readonly message = outcomes.unauthorized.type
  readonly refusal = `key: ${this.ended === undefined ? "none that is known" : `${this.ended} is not in force`}`
}

export const forbidden = [
  "path",
  "scope",
  "model not allowed",
  "model not installed",
  "model list expired",
  "user blocked"
] as const

/** 403: the path, scope, model or end user is not allowed. `what` is for the audit row only. */
export class Forbidden extends Data.TaggedError("Forbidden")<{
  readonly what: (typeof forbidden)[number]
  /** what a client may have meant by a path */
  readonly hint?: string | undefined
}> {
  override readonly message = outcomes.forbidden.type
  readonly refusal = this.hint === undefined ? this.what : `${this.what}: ${this.hint}`
  /** What the client is told in `X-Hint`. Of models it is one sentence, whether they are there or not. */
  readonly told =
    this.what === "path"
      ? this.hint
      : this.what === "scope" || this.what === "user blocked"
        ? undefined
        : "not one of this key's models; GET /v1/models lists them"
}

/** 413: the body is larger than `MAX_REQUEST_BODY_BYTES`. */
export class PayloadTooLarge extends Data.TaggedError("PayloadTooLarge")<{ readonly limitBytes: number }> {
  override readonly message = `request body is larger than ${this.limitBytes} bytes`
  readonly refusal = `body: more than ${this.limitBytes} bytes`
}

/** 429 from the Limiter: one of the three per-minute or concurrency limits. */
export class RateLimited extends Data.TaggedError("RateLimited")<{
  readonly limit: keyof typeof limitWords
  /** absent: the key's */
  readonly scope?: BudgetScope
  /** of the limits for a model */
  readonly model?: string
  readonly value: number
  readonly retryAfterS: number
  readonly headroom?: Headroom
}> {
  readonly #words = limitWords[this.limit]
  override readonly message = `${ofScope[this.scope ?? "key"]}limit of ${counted(this.value, this.#words[0])} ${this.#words[1]} reached`
  readonly refusal = `limit: ${this.value} ${this.#words[0]}s ${this.#words[1].replace("per", "a")}, ${named(this.scope ?? "key", this.model)}`
}

/** 429: the key made more lists and refused requests than it may in a second (`http/FreeWork.ts`). */
export class FreeWorkExhausted extends Data.TaggedError("FreeWorkExhausted")<{
  readonly value: number
  readonly retryAfterS: number
}> {
  override readonly message = `limit of ${this.value} unmetered or refused requests per second reached`
  readonly refusal = `limit: ${this.value} lists and refused requests a second, key`
}

/** 429 from the Budget: the period's tokens are spent, or held by requests that run. */
export class BudgetExhausted extends Data.TaggedError("BudgetExhausted")<{
  readonly scope: BudgetScope
  /** of the budget for a model */
  readonly model?: string
  readonly period: Period
  readonly value: number
  /** false: the requests that run hold what is left, and may give it back unused at any moment */
  readonly isSpent: boolean
  readonly retryAfterS: number
  readonly headroom: Headroom
}> {
  override readonly message = `${ofScope[this.scope]}${ofPeriod[this.period]} budget of ${counted(this.value, "token")} is ${this.isSpent ? "spent" : "held by requests that run"}`
  readonly refusal = `budget: ${this.value} tokens, ${this.period}, ${named(this.scope, this.model)}${this.isSpent ? "" : ", held"}`
}

/** 429: too many requests wait for the backend, or this one has waited for too long. */
export class CapacityExceeded extends Data.TaggedError("CapacityExceeded")<{
  /** whole seconds, at least 1: the time that the queue needs at its present rate */
  readonly retryAfterS: number
}> {
  override readonly message = "too many requests wait for the model server"
  readonly refusal = "queue: no place in time"
}

/** The ways in which a backend call can fail, and what the backend did. Log, audit row and breaker use them. */
export const backendFaults = {
  /** no connection could be made, so the request was not sent */
  unreachable: "could not be reached",
  timeout: "did not answer in time",
  status: "answered with an error",
  busy: "was busy",
  redirect: "answered with a redirect",
  protocol: "answered something that is not its protocol",
  reported: "reported an error in its answer",
  /** ended cleanly before its first frame */
  empty: "ended its answer before it began",
  /** the request was at fault, and the backend reported it after the first frame */
  refused: "refused the request after its answer had begun",
  /** the connection broke after the request was sent */
  cut: "cut its answer off"
} as const
export type BackendFault = keyof typeof backendFaults

/** 502: the circuit breaker is open, so the backend was not called. It always has a `Retry-After`. */
export class CircuitOpen extends Data.TaggedError("CircuitOpen")<{ readonly retryAfterS: number }> {
  override readonly message = backendUnavailable
  readonly refusal = "model server: circuit open"
}

/** 502: the backend was called and failed. Its text is never shown. */
export class BackendFailed extends Data.TaggedError("BackendFailed")<{
  readonly fault: BackendFault
  readonly retryAfterS?: number
  readonly cause?: unknown
}> {
  override readonly message = backendUnavailable
  readonly refusal = `model server: ${this.fault}`
}

/** 503: `gate` could not decide, so the request is refused. */
export class Unavailable extends Data.TaggedError("Unavailable")<{
  readonly gate: Gate
  readonly retryAfterS?: number
  /** too many requests at once; no part has failed */
  readonly crowded?: boolean
  readonly cause: unknown
}> {
  override readonly message = serviceUnavailable
  readonly refusal = `gate: ${this.gate}${this.crowded === true ? ", crowded" : ""}`
}

/** 503: the process stops and its grace has expired, or an operator has stopped the requests of the key. */
export class ShuttingDown extends Data.TaggedError("ShuttingDown")<{
  /** absent: the process stops */
  readonly key?: string
}> {
  readonly retryAfterS = 1
  override readonly message = serviceUnavailable
  readonly refusal = this.key === undefined ? "gateway: shutting down" : "gateway: stopped by an operator"
}

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
