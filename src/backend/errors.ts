/**
 * What a backend's misbehaviour means: the one table from HTTP answers and broken
 * connections to the gateway's own errors. The backend's text stays inside `cause`, cut, for the log.
 */
import {
  BackendFailed,
  type BackendFault,
  BadRequest,
  type CircuitOpen,
  Forbidden,
  ShuttingDown
} from "../domain/Errors.ts"
import { replaceControls } from "../domain/text.ts"
import { type Refusal, refusalOf, refusals } from "./ollama/refusals.ts"
import type { Head, TransportError } from "./ollama/UpstreamCall.ts"

/** What a call to the backend can end in: its own failure, a fault of the request, or the end of this process; or no call. */
export type CallError = BackendFailed | BadRequest | CircuitOpen | Forbidden | ShuttingDown

/** An HTTP answer other than the one hoped for. */
export class UnexpectedAnswer extends Error {
  readonly status: number
  constructor(status: number, text: string) {
    super(`backend answered ${status}: ${cleaned(text)}`)
    this.name = "UnexpectedAnswer"
    this.status = status
  }
}

export const fromTransport = (error: TransportError): BackendFailed | ShuttingDown => {
  switch (error.kind) {
    case "stopped":
      return new ShuttingDown()
    case "timeout":
      return new BackendFailed({ fault: "timeout", cause: error })
    case "garbled":
      return new BackendFailed({ fault: "protocol", cause: error })
    case "lost":
      return new BackendFailed({ fault: error.answered ? "cut" : "unreachable", cause: error })
  }
}

/** Any status but 200. `text` is the beginning of the body. */
export const fromStatus = (head: Head, text: string): BackendFailed | BadRequest | Forbidden => {
  const { status } = head
  const cause = new UnexpectedAnswer(status, text)
  if (status < 300) return new BackendFailed({ fault: "protocol", cause })
  if (status < 400) return new BackendFailed({ fault: "redirect", cause })
  // Busy is not broken: it says when to come back, or in a second.
  if (status === 503)
    return new BackendFailed({ fault: "busy", retryAfterS: Math.min(head.retryAfterS ?? 1, 60), cause })
  if (status >= 500) {
    const refusal = refusalOf(text)
    return refusal === undefined
      ? new BackendFailed({ fault: "status", cause })
      : new BadRequest({ detail: refusals[refusal] })
  }
  if (status === 404) return new Forbidden({ what: "model" })
  // These speak of the gateway's own standing with the backend, not of the client's request.
  if (status === 401 || status === 403 || status === 407 || status === 429)
    return new BackendFailed({ fault: "status", cause })
  return new BadRequest({ detail: refusals[refusalOf(text) ?? "other"] })
}

/** A line `{"error": …}` where a frame should be. */
export const ofErrorLine = (text: string): BackendFailed => {
  const refusal = refusalOf(text)
  return refusal === undefined
    ? new BackendFailed({ fault: "reported", cause: new Error(cleaned(text)) })
    : new BackendFailed({ fault: "refused", cause: new RefusedInBand(refusal, text) })
}

/** An error line that speaks of the request; before the first frame it can still be a 400. */
class RefusedInBand extends Error {
  readonly refusal: Refusal
  constructor(refusal: Refusal, text: string) {
    super(cleaned(text))
    this.name = "RefusedInBand"
    this.refusal = refusal
  }
}

/** Ollama 0.11 answers 200 and says in the first line what later ones say with a status. */
export const beforeFirstFrame = <E>(error: E): E | BadRequest =>
  error instanceof BackendFailed && error.cause instanceof RefusedInBand
    ? new BadRequest({ detail: refusals[error.cause.refusal] })
    : error

/** Faults that a request can cause, or that pass by themselves: none of them opens the circuit. */
const harmless: ReadonlySet<BackendFault> = new Set(["busy", "refused", "empty"])

/** Whether an error speaks against the backend's health: what the breaker counts. */
export const isBreakerFailure = (error: CallError): boolean => {
  if (error._tag !== "BackendFailed" || harmless.has(error.fault)) return false
  return !(error.cause instanceof UnexpectedAnswer && error.cause.status >= 400 && error.cause.status < 500)
}

/** One line, no control characters, at most 500 characters. */
const cleaned = (text: string): string => replaceControls(text, " ").slice(0, 500)
