/**
 * One HTTP request to the backend with undici's `dispatch`. Readers pull its bytes, and the socket is paused while
 * too many bytes wait.
 *
 * It uses `dispatch` and not `request` or `fetch`: `dispatch` makes no streams and no promises, and `abort` closes
 * the connection within a tick. A redirect is an answer like any other. Proxy settings of the environment are not
 * read.
 */
import { Effect } from "effect"
import { Client, type Dispatcher, errors } from "undici"
import { ShuttingDown } from "../../domain/Errors.ts"
import type { Timer } from "../../infra/time.ts"

/** Bytes that may wait before the socket is paused. */
const highWater = 64 * 1024
/** Bytes and time that the discarded rest of a response may take before its connection is closed. */
const drainBytes = 64 * 1024
const drainMs = 1000

/** A failure of the connection. */
export class TransportError extends Error {
  readonly _tag = "WireError"
  /**
   * `unreachable`: no connection could be made; `lost`: it broke after the request was sent; `timeout`: too late; `garbled`: not
   * HTTP; `stopped`: this process stops
   */
  readonly kind: "unreachable" | "lost" | "timeout" | "garbled" | "stopped"
  /** whether any byte of a response came */
  readonly answered: boolean
  /** whether the connection had served another request before */
  readonly reused: boolean
  constructor(kind: TransportError["kind"], answered: boolean, reused: boolean, cause: unknown) {
    super(`backend connection: ${kind}`, { cause })
    this.name = "WireError"
    this.kind = kind
    this.answered = answered
    this.reused = reused
  }
}

export interface Head {
  readonly status: number
  readonly contentType: string
  readonly encoded: boolean
  /** whether the body marks its own end; otherwise its end looks like a broken connection */
  readonly delimited: boolean
  /** of `Retry-After`, when it is in seconds */
  readonly retryAfterS: number | undefined
}

/** Counts the requests of its connection. A request may be retried only if its connection was used before. */
export class CountingClient extends Client {
  #served = 0
  constructor(origin: URL, options: object) {
    super(origin, options)
    this.on("connect", () => {
      this.#served = 0
    })
  }
  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler): boolean {
    if (handler instanceof UpstreamCall) handler.client = this
    return super.dispatch(options, handler)
  }
  /** Counts a request of the connection, and returns how many came before it. */
  begin(): number {
    const before = this.#served
    this.#served += 1
    return before
  }
}

export class UpstreamCall implements Dispatcher.DispatchHandler {
  client: CountingClient | undefined
  #controller: Dispatcher.DispatchController | undefined
  #head: Head | undefined
  #chunks: Array<Buffer> = []
  #waiting = 0
  #ended = false
  #error: TransportError | undefined
  #reused = false
  #aborted: Error | undefined
  /** bytes of the rest of the response that may still be discarded; undefined: nothing is discarded */
  #draining: number | undefined
  #wake: (() => void) | undefined
  readonly #timer: Timer
  #cancelTimer: (() => void) | undefined
  #unregister: (() => void) | undefined

  constructor(timer: Timer) {
    this.#timer = timer
  }

  /** Sets the deadline of the request. It replaces an earlier one. The rest of a response has a deadline of its own (`finish`). */
  setDeadline(ms: number, why: string): void {
    if (this.#draining !== undefined) return
    this.#cancelTimer?.()
    if (this.#ended || this.#error !== undefined) return
    this.#cancelTimer = this.#timer(ms, () => this.abort(new DeadlineExceeded(why)))
  }

  /** Registers the request with the shutdown, which ends it. */
  onShutdown(register: (stop: () => void) => () => void): void {
    this.#unregister = register(() => this.abort(new ShuttingDown()))
  }

  /**
   * Succeeds when the head of the response is in. For an answer it waits for the first bytes too: they usually come
   * in the same read, so there is one wake-up instead of two.
   */
  head(): Effect.Effect<Head, TransportError> {
    return Effect.callback((resume) =>
      this.#when(
        () => {
          if (this.#head !== undefined) return resume(Effect.succeed(this.#head))
          if (this.#error !== undefined) return resume(Effect.fail(this.#error))
          return undefined
        },
        () =>
          (this.#head !== undefined && (this.#head.status !== 200 || this.#readable)) ||
          this.#error !== undefined
      )
    )
  }

  /** Returns the bytes since the last call, at least one chunk; none when the body has ended. */
  chunks(): Effect.Effect<ReadonlyArray<Buffer> | TransportError> {
    return Effect.callback((resume) =>
      this.#when(
        () => resume(Effect.succeed(this.#takeNow())),
        () => this.#readable || this.#error !== undefined
      )
    )
  }

  /** Bytes that wait to be taken. */
  get waiting(): number {
    return this.#waiting
  }

  /** The same as `chunks` for a reader that does not wait; `undefined` when nothing waits. */
  takeWaiting(): ReadonlyArray<Buffer> | undefined {
    if (this.#chunks.length === 0) return undefined
    const bytes = this.#takeNow()
    return bytes instanceof TransportError ? undefined : bytes
  }

  /** Whether no more bytes will come. */
  get isOver(): boolean {
    return this.#ended || this.#error !== undefined
  }

  /** Calls `wake` whenever bytes, the end or an error has come. It replaces whoever waits. */
  onReady(wake: (() => void) | undefined): void {
    this.#wake = wake
  }

  get #readable(): boolean {
    return this.#chunks.length > 0 || this.#ended
  }

  /** The same as `chunks`, but fails with the error. */
  take(): Effect.Effect<ReadonlyArray<Buffer>, TransportError> {
    // `filterOrFail` does not narrow what it gives to its error.
    // @effect-diagnostics-next-line flatMapConditionalToFilterOrFail:off
    return Effect.flatMap(this.chunks(), (bytes) =>
      bytes instanceof TransportError ? Effect.fail(bytes) : Effect.succeed(bytes)
    )
  }

  #takeNow(): ReadonlyArray<Buffer> | TransportError {
    // Bytes that came before an error are returned first.
    if (this.#chunks.length === 0 && this.#error !== undefined) return this.#error
    const chunks = this.#chunks
    this.#chunks = []
    this.#waiting = 0
    this.#controller?.resume()
    return chunks
  }

  /** Runs `then` when `ready` holds. Only one waiter at a time. Returns a function that stops waiting. */
  #when(then: () => void, ready: () => boolean): Effect.Effect<void> {
    if (ready()) {
      then()
      return Effect.void
    }
    const wake = () => {
      if (!ready()) return
      this.#wake = undefined
      then()
    }
    this.#wake = wake
    return Effect.sync(() => {
      if (this.#wake === wake) this.#wake = undefined
    })
  }

  /** Ends the request now, in any state, and closes its connection. */
  abort(reason: Error): void {
    if (this.#ended || this.#error !== undefined) return
    this.#aborted = reason
    this.#controller?.abort(reason)
    this.#fail(reason)
  }

  /**
   * Ends the request now, unless the rest of its response is being discarded.
   */
  close(): void {
    this.#unregister?.()
    // Most calls are over by now. An error is made only for the others, because its stack trace takes some 30 µs.
    if (this.#draining === undefined && !this.isOver) this.abort(new Error("call closed"))
  }

  /** Discards the rest of the response. If it ends soon, its connection can be reused. */
  finish(): void {
    if (this.#ended || this.#error !== undefined || this.#draining !== undefined) return
    this.#cancelTimer?.()
    this.#cancelTimer = this.#timer(drainMs, () => this.abort(new Error("response went on after its end")))
    this.#draining = drainBytes
    this.#chunks = []
    this.#controller?.resume()
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    this.#reused = (this.client?.begin() ?? 0) > 0
    // The call was aborted while it waited for a connection.
    if (this.#aborted !== undefined) controller.abort(this.#aborted)
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
  ): void {
    // 1xx responses are not the answer.
    if (status < 200) return
    const retryAfter = Number(headers["retry-after"])
    this.#head = {
      status,
      contentType: String(headers["content-type"] ?? "").toLowerCase(),
      delimited: headers["transfer-encoding"] !== undefined || headers["content-length"] !== undefined,
      encoded: (headers["content-encoding"] ?? "identity") !== "identity",
      retryAfterS: Number.isSafeInteger(retryAfter) && retryAfter > 0 ? retryAfter : undefined
    }
    this.#wake?.()
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#draining !== undefined) {
      this.#draining -= chunk.length
      if (this.#draining < 0) this.abort(new Error("response went on after its end"))
      return
    }
    this.#chunks.push(chunk)
    this.#waiting += chunk.length
    if (this.#waiting >= highWater) controller.pause()
    this.#wake?.()
  }

  onResponseEnd(): void {
    this.#cancelTimer?.()
    this.#ended = true
    this.#wake?.()
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#fail(error)
  }

  #fail(error: Error): void {
    if (this.#ended || this.#error !== undefined) return
    this.#cancelTimer?.()
    this.#error = new TransportError(
      kindOf(error, this.#controller !== undefined),
      this.#head !== undefined,
      this.#reused,
      error
    )
    this.#wake?.()
  }
}

/** A request, or the wait for its first frame, took too long. */
export class DeadlineExceeded extends Error {}

const kindOf = (error: Error, sent: boolean): TransportError["kind"] => {
  if (error instanceof ShuttingDown) return "stopped"
  if (error instanceof DeadlineExceeded) return "timeout"
  if (error instanceof errors.HeadersTimeoutError || error instanceof errors.BodyTimeoutError)
    return "timeout"
  if (error instanceof errors.HTTPParserError || error instanceof errors.HeadersOverflowError)
    return "garbled"
  return sent ? "lost" : "unreachable"
}
