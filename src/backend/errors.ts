/** How a call to the backend can fail, whatever adapter makes it, and which failures open the circuit. */
import type {
  BackendFailed,
  BackendFault,
  BadRequest,
  CircuitOpen,
  Forbidden,
  ShuttingDown,
  Unavailable
} from "../domain/Errors.ts"
import { replaceControls } from "../domain/text.ts"
import type { Verdict } from "./CircuitBreaker.ts"

/** The backend's text for the log: one line, no control characters, at most 500 characters. */
export const loggable = (text: string): string => replaceControls(text, " ").slice(0, 500)

/**
 * The errors of a backend call: a failure of the backend, a fault of the request, no memory for its
 * answer, the end of this process, or no call at all.
 */
export type CallError = BackendFailed | BadRequest | CircuitOpen | Forbidden | ShuttingDown | Unavailable

/** An unexpected HTTP answer. */
export class UnexpectedAnswer extends Error {
  readonly status: number
  constructor(status: number, text: string) {
    super(`backend answered ${status}: ${loggable(text)}`)
    this.name = "UnexpectedAnswer"
    this.status = status
  }
}

/** No answer to a request, while the server does not answer the gateway's own question either. */
export class NotAnswering extends Error {}

/** A request ended before its time, because its model has sent nothing to the requests before it. */
export class SilentBefore extends Error {}

/** Faults that are the request's, or that pass by themselves. */
const harmless: ReadonlySet<BackendFault> = new Set(["busy", "refused", "empty"])

/** What an error says of the model server. */
export const verdictOf = (error: CallError): Verdict => {
  if (error._tag !== "BackendFailed" || harmless.has(error.fault)) return "ignored"
  if (error.fault === "unreachable") return "outage"
  const { cause } = error
  if (cause instanceof NotAnswering) return "outage"
  // The request that waited the whole time was counted already.
  if (cause instanceof SilentBefore) return "ignored"
  return cause instanceof UnexpectedAnswer && cause.status >= 400 && cause.status < 500
    ? "ignored"
    : "failure"
}
