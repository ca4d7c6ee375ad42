/**
 * One HTTP request with the backend on undici's `dispatch`, turned into pulls: bytes are taken when somebody asks
 * for them, and the socket is paused while too many wait.
 *
 * It uses `dispatch` and not `request` or `fetch`: `dispatch` makes no streams and no promises, and `abort` closes the
 * connection within a tick. A redirect is an answer like any other. Proxy settings of the environment are not read.
 */
import { Effect } from "effect"
import { Client, type Dispatcher, errors } from "undici"
import { ShuttingDown } from "../../domain/Errors.ts"
import type { Timer } from "../../infra/time.ts"

/** Bytes that may wait before the socket is paused. */
const highWater = 64 * 1024
/** How much, and how long, a response may go on after all that is wanted of it, before its connection is given up. */
const drainBytes = 64 * 1024
const drainMs = 1000

/** What became of an request that did not end well. */
export class TransportError extends Error {
  readonly _tag = "WireError"
  /**
   * `lost`: the connection could not be made or broke; `timeout`: nothing came in time; `garbled`: not HTTP; `stopped`:
   * this process ends
   */
  readonly kind: "lost" | "timeout" | "garbled" | "stopped"
  /** whether any byte of a response had come */
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
  /** whether the body says by itself where it ends; else its end cannot be told from a connection that broke */
  readonly delimited: boolean
  /** of `Retry-After`, when it is in seconds */
  readonly retryAfterS: number | undefined
}

/** A client that counts the requests of its present connection: only one on a used connection may be retried. */
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
  /** Notes a request on the connection and tells how many came before it. */
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
  #draining: { left: number; readonly timer: NodeJS.Timeout } | undefined
  #wake: (() => void) | undefined
  readonly #alarm: Timer
  #cancelTimer: (() => void) | undefined
  #unregister: (() => void) | undefined

  constructor(alarm: Timer) {
    this.#alarm = alarm
  }

  /** Ends the request in `ms`, unless it has ended by then. A new limit takes the place of the one before. */
  limit(ms: number, why: string): void {
    this.#cancelTimer?.()
    if (this.#ended || this.#error !== undefined) return
    this.#cancelTimer = this.#alarm(ms, () => this.abort(new TooLong(why)))
  }

  /** Ends the request, unless it has ended by then, when what it registers with says that this process stops. */
  onShutdown(register: (stop: () => void) => () => void): void {
    this.#unregister = register(() => this.abort(new ShuttingDown()))
  }

  /**
   * Succeeds once the response's head is in; when it announces an answer, once that has begun, which is nearly always in
   * the same read and makes one wake-up of two.
   */
  readonly head: Effect.Effect<Head, TransportError> = Effect.callback((resume) =>
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

  /** The bytes that came since the last time, at least one chunk; none when the body has ended. */
  readonly chunks: Effect.Effect<ReadonlyArray<Buffer> | TransportError> = Effect.callback((resume) =>
    this.#when(
      () => resume(Effect.succeed(this.#takeNow())),
      () => this.#readable || this.#error !== undefined
    )
  )

  get #readable(): boolean {
    return this.#chunks.length > 0 || this.#ended
  }

  /** The same, for those who take an error for one. */
  readonly take: Effect.Effect<ReadonlyArray<Buffer>, TransportError> = Effect.flatMap(this.chunks, (bytes) =>
    bytes instanceof TransportError ? Effect.fail(bytes) : Effect.succeed(bytes)
  )

  #takeNow(): ReadonlyArray<Buffer> | TransportError {
    // What came before an error was said before it.
    if (this.#chunks.length === 0 && this.#error !== undefined) return this.#error
    const chunks = this.#chunks
    this.#chunks = []
    this.#waiting = 0
    this.#controller?.resume()
    return chunks
  }

  /** Runs `then` as soon as `ready` holds; one waiter at a time. Answers the way to stop waiting. */
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

  /** Ends the request now, whatever its state; the connection goes with it. */
  abort(reason: Error): void {
    if (this.#ended || this.#error !== undefined) return
    this.#aborted = reason
    this.#controller?.abort(reason)
    this.#fail(reason)
  }

  /** Lets go of it: a response that is only being seen off may do so, anything else ends now. */
  close(): void {
    this.#unregister?.()
    if (this.#draining === undefined) this.abort(new Error("no longer wanted"))
  }

  /** Nothing more is wanted: lets a response that is about to end do so, to keep its connection. */
  finish(): void {
    if (this.#ended || this.#error !== undefined || this.#draining !== undefined) return
    this.#cancelTimer?.()
    const timer = setTimeout(() => this.abort(new Error("response went on after its end")), drainMs)
    timer.unref()
    this.#draining = { left: drainBytes, timer }
    this.#chunks = []
    this.#controller?.resume()
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    this.#reused = (this.client?.begin() ?? 0) > 0
    // It was called off while it waited for a connection.
    if (this.#aborted !== undefined) controller.abort(this.#aborted)
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: Readonly<Record<string, string | ReadonlyArray<string> | undefined>>
  ): void {
    // 1xx are announcements, not answers.
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
      this.#draining.left -= chunk.length
      if (this.#draining.left < 0) this.abort(new Error("response went on after its end"))
      return
    }
    this.#chunks.push(chunk)
    this.#waiting += chunk.length
    if (this.#waiting >= highWater) controller.pause()
    this.#wake?.()
  }

  onResponseEnd(): void {
    clearTimeout(this.#draining?.timer)
    this.#cancelTimer?.()
    this.#ended = true
    this.#wake?.()
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#fail(error)
  }

  #fail(error: Error): void {
    clearTimeout(this.#draining?.timer)
    if (this.#ended || this.#error !== undefined) return
    this.#cancelTimer?.()
    this.#error = new TransportError(kindOf(error), this.#head !== undefined, this.#reused, error)
    this.#wake?.()
  }
}

/** Says that an request, or the wait for its first frame, lasted longer than any may. */
export class TooLong extends Error {}

const kindOf = (error: Error): TransportError["kind"] => {
  if (error instanceof ShuttingDown) return "stopped"
  if (error instanceof TooLong) return "timeout"
  if (error instanceof errors.HeadersTimeoutError || error instanceof errors.BodyTimeoutError)
    return "timeout"
  if (error instanceof errors.HTTPParserError || error instanceof errors.HeadersOverflowError)
    return "garbled"
  return "lost"
}
