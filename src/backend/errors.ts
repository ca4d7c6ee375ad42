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

/** Faults that a request can cause, or that pass by themselves. They do not open the circuit. */
const harmless: ReadonlySet<BackendFault> = new Set(["busy", "refused", "empty"])

/** Whether the breaker counts an error as a failure of the backend. */
export const isBreakerFailure = (error: CallError): boolean => {
  if (error._tag !== "BackendFailed" || harmless.has(error.fault)) return false
  return !(error.cause instanceof UnexpectedAnswer && error.cause.status >= 400 && error.cause.status < 500)
}
