/**
 * One HTTP request to the model server, with undici's `dispatch`. It is the only file that knows undici's callbacks: to
 * others a call is an effect with the head of the response, and a pull of the bytes of its body.
 *
 * It uses `dispatch` and not `request` or `fetch`: `abort` closes the connection within a tick, a redirect is an answer like
 * any other, and proxy settings of the environment are not read.
 */
import { Array as Arr, Cause, Effect, type Pull, Result } from "effect"
import { Client, type Dispatcher } from "undici"
import type { BackendFailed, ShuttingDown } from "../../domain/Errors.ts"
import type { Drain, RequestOfKey } from "../../infra/Drain.ts"
import { DeadlineExceeded, fromTransport, TransportError, Unwanted } from "./errors.ts"

/** Bytes that may wait before the socket is paused. */
const highWater = 64 * 1024
/** Bytes and time that the discarded rest of a response may take before its connection is closed. */
const discardBytes = 64 * 1024
const discardMs = 1000

/** Follows the last bytes of a body that is complete. */
export const endOfBody = Buffer.alloc(0)

/** How a body can break. */
type Broken = BackendFailed | ShuttingDown

type Bytes = Pull.Pull<Arr.NonEmptyReadonlyArray<Buffer>, Broken>

export interface Head {
  readonly status: number
  readonly contentType: string
  readonly encoded: boolean
  /** whether the body marks its own end; otherwise its end looks like a broken connection */
  readonly delimited: boolean
  /** of `Retry-After`, when it is in seconds */
  readonly retryAfterS: number | undefined
}

/** Counts the requests of its connection. A request may be sent again only if its connection was used before. */
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
  /** the head of the response; undefined: it has not come */
  #head: Effect.Effect<Head, TransportError> | undefined
  /** bytes that came and were not pulled, and what follows the last ones */
  #bytes: Array<Buffer> = []
  #end: Pull.Pull<never, Broken> | undefined
  /** continues the fiber that waits */
  #wake: (() => void) | undefined
  #controller: Dispatcher.DispatchController | undefined
  #waiting = 0
  #answered = false
  #reused = false
  #aborted: Error | undefined
  /** bytes of the rest of the response that may still be discarded; undefined: nothing is discarded */
  #discardable: number | undefined
  #deadline: NodeJS.Timeout | undefined
  #unregister = () => {}

  /**
   * Sends a request, whose sender has to close it. `onCut` registers what must be called when this process or the key
   * stops, and returns what unregisters it.
   */
  static readonly send = (
    dispatcher: Dispatcher,
    options: Dispatcher.DispatchOptions,
    onCut: Drain["Service"]["onCut"],
    of: RequestOfKey | undefined
  ): UpstreamCall => {
    const call = new UpstreamCall()
    call.#unregister = onCut((why) => call.abort(why), of)
    dispatcher.dispatch(options, call)
    return call
  }

  /** Waits until `found` finds something. What came in one read is found together. */
  #when<A, E>(found: () => Effect.Effect<A, E> | undefined): Effect.Effect<A, E> {
    return Effect.callback((resume) => {
      let left = false
      const wake = () => {
        if (left) return
        // It calls undici. A throw in a microtask would end the process, not the request.
        const outcome = Result.try({ try: found, catch: Effect.die })
        if (Result.isFailure(outcome)) resume(outcome.failure)
        else if (outcome.success === undefined) this.#wake = wake
        else resume(outcome.success)
      }
      wake()
      return Effect.sync(() => {
        left = true
        this.#wake = undefined
      })
    })
  }

  /** Continues the fiber that waits, when undici has told everything of this read. */
  #tell(): void {
    const wake = this.#wake
    this.#wake = undefined
    if (wake !== undefined) queueMicrotask(wake)
  }

  readonly head: Effect.Effect<Head, TransportError> = this.#when(() => this.#head)

  /**
   * Pulls the bytes as the socket brings them, and `endOfBody` after the last ones. Bytes that came before a failure go out
   * before it.
   */
  readonly bytes: Bytes = this.#when((): Bytes | undefined => {
    const bytes = this.#bytes
    if (!Arr.isArrayNonEmpty(bytes)) return this.#end
    const isPaused = this.#waiting >= highWater
    this.#bytes = []
    this.#waiting = 0
    // More may come before it returns.
    if (isPaused) this.#controller?.resume()
    return Effect.succeed(bytes)
  })

  /** Ends the request when `leftMs` says that no time is left. It replaces an earlier deadline. */
  setDeadline(leftMs: () => number, why: string): void {
    if (this.#end !== undefined || this.#discardable !== undefined) return
    clearTimeout(this.#deadline)
    const check = (): void => {
      const left = leftMs()
      if (left > 0) this.#deadline = setTimeout(check, left)
      else this.abort(new DeadlineExceeded(why))
    }
    this.#deadline = setTimeout(check, Math.max(0, leftMs()))
  }

  /** Ends the request now, in any state, and closes its connection. */
  abort(reason: Error): void {
    if (this.#end !== undefined) return
    this.#aborted = reason
    this.#controller?.abort(reason)
    this.#fail(reason)
  }

  /** Discards the rest of the response. If it ends soon, its connection can be reused. */
  discard(): void {
    if (this.#end !== undefined || this.#discardable !== undefined) return
    clearTimeout(this.#deadline)
    this.#deadline = setTimeout(
      () => this.abort(new DeadlineExceeded("response went on after its end")),
      discardMs
    )
    this.#discardable = discardBytes
    this.#controller?.resume()
  }

  /** Ends the request, unless the rest of its response is being discarded. */
  close(): void {
    if (this.#end === undefined && this.#discardable === undefined) this.abort(new Unwanted("closed"))
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
    this.#answered = true
    // 1xx responses are not the answer.
    if (status < 200) return
    const retryAfter = Number(headers["retry-after"])
    this.#head = Effect.succeed({
      status,
      contentType: String(headers["content-type"] ?? "").toLowerCase(),
      delimited: headers["transfer-encoding"] !== undefined || headers["content-length"] !== undefined,
      encoded: (headers["content-encoding"] ?? "identity") !== "identity",
      retryAfterS: Number.isSafeInteger(retryAfter) && retryAfter > 0 ? retryAfter : undefined
    })
    this.#tell()
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#discardable !== undefined) {
      this.#discardable -= chunk.length
      if (this.#discardable < 0) this.abort(new Error("response went on after its end"))
      return
    }
    this.#waiting += chunk.length
    if (this.#waiting >= highWater) controller.pause()
    this.#bytes.push(chunk)
    this.#tell()
  }

  onResponseEnd(): void {
    this.#bytes.push(endOfBody)
    this.#finish(Cause.done())
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#fail(error)
  }

  #fail(error: Error): void {
    if (this.#end !== undefined) return
    const failure = new TransportError(error, {
      answered: this.#answered,
      reused: this.#reused,
      sent: this.#controller !== undefined
    })
    this.#head ??= Effect.fail(failure)
    this.#finish(Effect.fail(fromTransport(failure)))
  }

  #finish(end: Pull.Pull<never, Broken>): void {
    clearTimeout(this.#deadline)
    this.#unregister()
    this.#end = end
    this.#tell()
  }
}
