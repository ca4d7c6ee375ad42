/**
 * What a backend's misbehaviour means (contract §7, ollama-wire §1.10): the one table from HTTP answers and broken
 * connections to the gateway's own errors. The backend's text stays inside `cause`, cut, for the log.
 */
import { BackendFailed, BadRequest, Forbidden, ShuttingDown } from "../domain/Errors.ts"
import type { Head, WireError } from "./Wire.ts"

/** What a call to the backend can end in: its own failure, a fault of the request, or the end of this process. */
export type Refused = BackendFailed | BadRequest | Forbidden | ShuttingDown

/** An HTTP answer other than the one hoped for. */
export class UnexpectedAnswer extends Error {
  readonly status: number
  constructor(status: number, text: string) {
    super(`backend answered ${status}: ${cleaned(text)}`)
    this.name = "UnexpectedAnswer"
    this.status = status
  }
}

/** The only sentences a client reads about its request being refused by the backend. */
export const refusals = {
  context: "the prompt does not fit: it is longer than the maximum context length of the model",
  feature: "the model does not support a feature that this request uses",
  other: "the model cannot process this request as it is"
} as const

export const ofWire = (error: WireError): BackendFailed | ShuttingDown => {
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
export const ofAnswer = (head: Head, text: string): BackendFailed | BadRequest | Forbidden => {
  const { status } = head
  const cause = new UnexpectedAnswer(status, text)
  if (status < 300) return new BackendFailed({ fault: "protocol", cause })
  if (status < 400) return new BackendFailed({ fault: "redirect", cause })
  // Busy is not broken: it says when to come back, or in a second.
  if (status === 503)
    return new BackendFailed({ fault: "busy", retryAfterS: Math.min(head.retryAfterS ?? 1, 60), cause })
  if (status >= 500) return new BackendFailed({ fault: "status", cause })
  if (status === 404) return new Forbidden({ what: "model" })
  // These speak of the gateway's own standing with the backend, not of the client's request.
  if (status === 401 || status === 403 || status === 407 || status === 429)
    return new BackendFailed({ fault: "status", cause })
  return new BadRequest({ detail: refusals[refusalOf(text)] })
}

/**
 * The legacy endpoint answers a prompt that is too long with a 500 (ollama-wire §1.7). It is the client's doing: five
 * such prompts must not open the breaker for everybody.
 */
export const overlong = <E>(error: E): E | BadRequest =>
  error instanceof BackendFailed &&
  error.cause instanceof UnexpectedAnswer &&
  error.cause.status === 500 &&
  refusalOf(error.cause.message) === "context"
    ? new BadRequest({ detail: refusals.context })
    : error

const refusalOf = (text: string): keyof typeof refusals => {
  if (/context (length|window|size)|prompt is (longer|too long)|input length/i.test(text)) return "context"
  if (/does not support|not supported|unsupported/i.test(text)) return "feature"
  return "other"
}

/** Whether an error speaks against the backend's health: what the breaker counts. */
export const isBreakerFailure = (error: Refused): boolean => {
  if (error._tag !== "BackendFailed" || error.fault === "busy" || error.fault === "circuit-open") return false
  return !(error.cause instanceof UnexpectedAnswer && error.cause.status >= 400 && error.cause.status < 500)
}

/** One line, no control characters, not long. */
// eslint-disable-next-line no-control-regex
const cleaned = (text: string): string => text.replaceAll(/[\p{Cc}\u2028\u2029]+/gu, " ").slice(0, 500)
