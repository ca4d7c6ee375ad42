/**
 * Maps Ollama's HTTP errors, error lines and broken connections to the gateway's errors. Ollama's text is cut and goes
 * into `cause`, for the log only.
 */
import { errors } from "undici"
import { BackendFailed, BadRequest, Forbidden, ShuttingDown } from "../../domain/Errors.ts"
import { type CallError, loggable, UnexpectedAnswer } from "../errors.ts"

/** The gateway itself has closed a request that it no longer wants. */
export class Unwanted extends Error {}

/**
 * What the model server says, and the only sentences a client gets when it refuses a request. Such an error is a 400 and no failure of
 * the server; otherwise one client could open the circuit for others. The first row that matches decides. An unknown text counts as a
 * failure of the server. llama-server answers too, through Ollama.
 */
export const errorTexts = {
  // The last one quotes a log.
  memory: [
    "the model needs more memory than the model server has",
    /requires more system memory|failed to (?:allocate|commit) memory for model|memory layout cannot be allocated|insufficient memory for image generation|reported out-of-memory during startup/i
  ],
  // Its own failure, though a request may have caused it. It may quote a log, so it comes before the others.
  server: [
    undefined,
    /runner|terminated|out of memory|resource limitations|error was encountered while running|panic|cuda|ggml|unable to (?:load|allocate)/i
  ],
  context: [
    "the prompt does not fit: it is longer than the maximum context length of the model",
    /context (?:length|window|size)|prompt is (?:longer|too long)|input length|input is too (?:long|large)|prompt removed by truncation/i
  ],
  schema: [
    "format: the model server cannot use this JSON schema",
    /JSON schema in format|invalid format: [\\"]|grammar|vocabulary required for format|sampling context/i
  ],
  image: [
    "images: the model server cannot read an image of this request",
    /\bimages?\b|\b(?:png|jpeg|gif|webp|bmp|tiff): /i
  ],
  feature: [
    "the model does not support a feature that this request uses",
    /does not support|not supported for this model|this model only supports/i
  ],
  other: [
    "the model cannot process this request as it is",
    /create new sequence|process inputs|no input provided|\btokeniz(?:e|ation)\b|unable to shift context|roles must alternate|\btemplate: \S*:\d|parsing tool call|tool call arguments|jinja exception|(?:unexpected|unknown|invalid|unsupported)(?: message)? role|(?:unsupported value:|contains) (?:NaN|[+-]Inf)|token repeat limit/i
  ]
} as const satisfies Record<string, readonly [says: string | undefined, pattern: RegExp]>

/** What a client is told when an error text blames its request; undefined for a failure of the server or an unknown text. */
export const refusalOf = (text: string): string | undefined =>
  Object.values(errorTexts).find(([, pattern]) => pattern.test(text))?.[0]

/** Whether the server ended the answer because the model repeated one token (an error line since September 2026). */
export const isRepeatLimit = (text: string): boolean => /token repeat limit/i.test(text)

/** A request, or the wait for its first frame, took too long. */
export class DeadlineExceeded extends Error {}

const kindOf = (error: Error, sent: boolean): TransportError["kind"] => {
  if (error instanceof ShuttingDown || error instanceof Unwanted) return "stopped"
  if (error instanceof DeadlineExceeded) return "timeout"
  if (error instanceof errors.HeadersTimeoutError || error instanceof errors.BodyTimeoutError)
    return "timeout"
  if (error instanceof errors.HTTPParserError || error instanceof errors.HeadersOverflowError)
    return "garbled"
  return sent ? "lost" : "unreachable"
}

/** A failure of the connection. */
export class TransportError extends Error {
  readonly _tag = "TransportError"
  /**
   * `unreachable`: no connection could be made (refused, reset or timed out while connecting), which no request can cause; `lost`: it
   * broke after the request was sent, which the request may have caused; `timeout`: too late; `garbled`: not HTTP; `stopped`: the
   * gateway has ended it
   */
  readonly kind: "unreachable" | "lost" | "timeout" | "garbled" | "stopped"
  /** whether any byte of a response came */
  readonly answered: boolean
  /** whether the connection had served another request before */
  readonly reused: boolean
  constructor(
    cause: Error,
    {
      answered,
      reused,
      sent
    }: { readonly answered: boolean; readonly reused: boolean; readonly sent: boolean }
  ) {
    const kind = kindOf(cause, sent)
    super(`backend connection: ${kind}`, { cause })
    this.name = "TransportError"
    this.kind = kind
    this.answered = answered
    this.reused = reused
  }
}

/** Bytes of an error's body that are read. Its beginning is enough to classify it. */
export const errorBytes = 64 * 1024

/** The server answers otherwise than its protocol says. */
export const protocol = (what: string): BackendFailed =>
  new BackendFailed({ fault: "protocol", cause: new Error(what) })

/** Whether the server has closed an idle connection while the request was sent on it. */
export const wasClosedIdle = (error: unknown): boolean =>
  error instanceof TransportError && error.kind === "lost" && error.reused && !error.answered

/** Whether a call has ended because no time was left. */
export const wasLate = (error: CallError): boolean =>
  error._tag === "BackendFailed" &&
  error.cause instanceof TransportError &&
  error.cause.cause instanceof DeadlineExceeded

const faults = { timeout: "timeout", garbled: "protocol", unreachable: "unreachable", lost: "cut" } as const

export const fromTransport = (error: TransportError): BackendFailed | ShuttingDown => {
  if (error.cause instanceof ShuttingDown) return error.cause
  return error.kind === "stopped"
    ? new ShuttingDown({})
    : new BackendFailed({ fault: faults[error.kind], cause: error })
}

const refusedFor = (detail: string): BadRequest =>
  new BadRequest({ detail, ...(detail === errorTexts.context[0] ? { overflow: true } : {}) })

/** Maps any status but 200. `text` is the beginning of the body. */
export const fromStatus = (
  { retryAfterS = 1, status }: { readonly status: number; readonly retryAfterS?: number | undefined },
  text: string
): BackendFailed | BadRequest | Forbidden => {
  const cause = new UnexpectedAnswer(status, text)
  if (status < 300) return new BackendFailed({ fault: "protocol", cause })
  if (status < 400) return new BackendFailed({ fault: "redirect", cause })
  // A busy server is not a failed one.
  if (status === 503)
    return new BackendFailed({ fault: "busy", retryAfterS: Math.min(retryAfterS, 60), cause })
  if (status >= 500) {
    const refusal = refusalOf(text)
    return refusal === undefined ? new BackendFailed({ fault: "status", cause }) : refusedFor(refusal)
  }
  if (status === 404) return new Forbidden({ what: "model not installed" })
  // These are about the gateway's access to the backend, not about the client's request.
  if (status === 401 || status === 403 || status === 407 || status === 429)
    return new BackendFailed({ fault: "status", cause })
  return refusedFor(refusalOf(text) ?? errorTexts.other[0])
}

/** Maps a line `{"error": …}`. */
export const fromErrorLine = (text: string): BackendFailed =>
  new BackendFailed({
    fault: refusalOf(text) === undefined ? "reported" : "refused",
    cause: new Error(loggable(text))
  })
