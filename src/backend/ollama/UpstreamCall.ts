/**
 * One HTTP request to the model server, with undici's `dispatch`. It is the only file that knows undici's callbacks: to
 * others a call is an effect with the head of the response, and a pull of the bytes of its body.
 *
 * It uses `dispatch` and not `request` or `fetch`: `abort` closes the connection within a tick, a redirect is an answer like
 * any other, and proxy settings of the environment are not read.
 */
import { type Array as Arr, Cause, Deferred, Effect, Exit, type Pull, Queue, Scope } from "effect"
import { Client, type Dispatcher } from "undici"
import { type BackendFailed, ShuttingDown } from "../../domain/Errors.ts"
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
  readonly head: Effect.Effect<Head, TransportError>
  /**
   * Pulls the bytes as the socket brings them, and `endOfBody` after the last ones. Bytes that came before a failure go out
   * before it.
   */
  readonly bytes: Pull.Pull<Arr.NonEmptyReadonlyArray<Buffer>, Broken>
  readonly #head: Deferred.Deferred<Head, TransportError>
  readonly #bytes: Queue.Queue<Buffer, Broken | Cause.Done>
  #controller: Dispatcher.DispatchController | undefined
  #waiting = 0
  #answered = false
  #reused = false
  #over = false
  #aborted: Error | undefined
  /** bytes of the rest of the response that may still be discarded; undefined: nothing is discarded */
  #discardable: number | undefined
  #deadline: NodeJS.Timeout | undefined

  /**
   * Sends a request. It ends with the Scope. `onShutdown` registers what must be called when this process stops, and returns
   * what unregisters it.
   */
  static readonly send = Effect.fnUntraced(function* (
    dispatcher: Dispatcher,
    options: Dispatcher.DispatchOptions,
    onShutdown: (stop: () => void) => () => void
  ) {
    const call = new UpstreamCall(
      yield* Deferred.make<Head, TransportError>(),
      yield* Queue.unbounded<Buffer, Broken | Cause.Done>()
    )
    const unregister = onShutdown(() => call.abort(new ShuttingDown()))
    yield* Scope.addFinalizer(
      yield* Effect.scope,
      Effect.sync(() => {
        unregister()
        call.#close()
      })
    )
    dispatcher.dispatch(options, call)
    return call
  })

  private constructor(
    head: Deferred.Deferred<Head, TransportError>,
    bytes: Queue.Queue<Buffer, Broken | Cause.Done>
  ) {
    this.#head = head
    this.#bytes = bytes
    this.head = Deferred.await(head)
    this.bytes = Effect.map(Queue.takeAll(bytes), (chunks) => {
      for (const { length } of chunks) this.#waiting -= length
      if (this.#waiting < highWater) this.#controller?.resume()
      return chunks
    })
  }

  /** Ends the request when `leftMs` says that no time is left. It replaces an earlier deadline. */
  setDeadline(leftMs: () => number, why: string): void {
    if (this.#over || this.#discardable !== undefined) return
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
    if (this.#over) return
    this.#aborted = reason
    this.#controller?.abort(reason)
    this.#fail(reason)
  }

  /** Discards the rest of the response. If it ends soon, its connection can be reused. */
  discard(): void {
    if (this.#over || this.#discardable !== undefined) return
    clearTimeout(this.#deadline)
    this.#deadline = setTimeout(
      () => this.abort(new DeadlineExceeded("response went on after its end")),
      discardMs
    )
    this.#discardable = discardBytes
    this.#controller?.resume()
  }

  /** Ends the request, unless the rest of its response is being discarded. */
  #close(): void {
    if (!this.#over && this.#discardable === undefined) this.abort(new Unwanted("closed"))
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
    Deferred.doneUnsafe(
      this.#head,
      Exit.succeed({
        status,
        contentType: String(headers["content-type"] ?? "").toLowerCase(),
        delimited: headers["transfer-encoding"] !== undefined || headers["content-length"] !== undefined,
        encoded: (headers["content-encoding"] ?? "identity") !== "identity",
        retryAfterS: Number.isSafeInteger(retryAfter) && retryAfter > 0 ? retryAfter : undefined
      })
    )
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#discardable !== undefined) {
      this.#discardable -= chunk.length
      if (this.#discardable < 0) this.abort(new Error("response went on after its end"))
      return
    }
    this.#waiting += chunk.length
    if (this.#waiting >= highWater) controller.pause()
    Queue.offerUnsafe(this.#bytes, chunk)
  }

  onResponseEnd(): void {
    this.#end()
    Queue.offerUnsafe(this.#bytes, endOfBody)
    Queue.endUnsafe(this.#bytes)
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.#fail(error)
  }

  #fail(error: Error): void {
    if (this.#over) return
    this.#end()
    const failure = new TransportError(error, {
      answered: this.#answered,
      reused: this.#reused,
      sent: this.#controller !== undefined
    })
    Deferred.doneUnsafe(this.#head, Exit.fail(failure))
    Queue.failCauseUnsafe(this.#bytes, Cause.fail(fromTransport(failure)))
  }

  #end(): void {
    this.#over = true
    clearTimeout(this.#deadline)
  }
}
