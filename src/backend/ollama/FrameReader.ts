/**
 * Decodes the frames of a response, one array for each read, up to the final frame. What comes after it is discarded.
 *
 * Ollama ends an answer without a final frame when the model repeats itself (31 equal tokens, for example in a loop
 * in JSON mode). When such an end is clean HTTP, the gateway adds a final frame: `length`, without counts. If
 * there was no frame before it, the call has failed, but that does not count as a failure of the server.
 */
import { Array as Arr, Cause, Effect, Pull, type Stream } from "effect"
import { BackendFailed, type ShuttingDown, type Unavailable } from "../../domain/Errors.ts"
import type { Frame } from "../../domain/Frame.ts"
import { fromSource, type NoChunk, type Source } from "../../infra/v8/stream.ts"
import type { AnswerShare } from "../AnswerMemory.ts"
import { type FrameBounds, foldedBytesOf, isTooDense, maxContainers } from "../answerBounds.ts"
import { decodeFrame, epoch, ErrorLine, type FrameKind, Malformed } from "./decodeFrame.ts"
import { fromErrorLine, fromTransport } from "./errors.ts"
import { LineSplitter, LineTooLong } from "./LineSplitter.ts"
import { isRepeatLimit } from "./refusals.ts"
import { type Head, type UpstreamCall, TransportError } from "./UpstreamCall.ts"

export type Frames = readonly [Frame, ...Array<Frame>]
type Failure = BackendFailed | ShuttingDown | Unavailable

/** Bounds of an answer, and the share that its memory is taken from. */
export interface AnswerLimits {
  readonly bounds: FrameBounds
  readonly share: AnswerShare
  /** whether the answer is collected and sent as one object */
  readonly isFolded: boolean
}

export class FrameReader implements Source<Frame, Failure> {
  readonly #call: UpstreamCall
  readonly #kind: FrameKind
  readonly #delimited: boolean
  readonly #streamed: boolean
  readonly #bounds: FrameBounds
  readonly #share: AnswerShare
  readonly #isFolded: boolean
  readonly #lines: LineSplitter
  /** memory of the frames so far, when they are collected */
  #folded = 0
  #bytes = 0
  #count = 0
  #failure: BackendFailed | undefined
  #done = false
  /** frames that were read before the stream was made */
  #held: Frames | undefined
  /** the backend's time of the last frame */
  #lastAt: string | undefined

  constructor(call: UpstreamCall, kind: FrameKind, head: Head, { bounds, isFolded, share }: AnswerLimits) {
    this.#call = call
    this.#bounds = bounds
    this.#share = share
    this.#isFolded = isFolded
    this.#lines = new LineSplitter(bounds.lineBytes)
    this.#kind = kind
    this.#delimited = head.delimited
    this.#streamed = head.contentType.startsWith("application/x-ndjson")
  }

  /**
   * Pulls the frames of the next read. `lost` maps the error of a broken connection. It runs for every chunk of every
   * stream, so it has as few steps as possible. While bytes wait for memory, nothing more is read.
   */
  #pull<E>(lost: (error: TransportError) => E): Pull.Pull<Frames, BackendFailed | Unavailable | E> {
    type Next = Pull.Pull<Frames, BackendFailed | Unavailable | E>
    const framesOf = (bytes: ReadonlyArray<Buffer>): Next => {
      const frames = bytes.length > 0 ? this.#read(bytes) : this.#finish()
      // Frames that came before a failure go out before it.
      return Arr.isReadonlyArrayNonEmpty(frames) ? Effect.succeed<Frames>(frames) : next
    }
    const reading = Effect.flatMap(this.#call.chunks(), (bytes): Next => {
      if (bytes instanceof TransportError) return Effect.fail(lost(bytes))
      const needed = this.#neededFor(bytes)
      if (this.#share.tryCollect(needed)) return framesOf(bytes)
      return Effect.flatMap(this.#share.collect(needed), () => framesOf(bytes))
    })
    const next = Effect.suspend((): Next => {
      if (this.#failure !== undefined) return Effect.fail(this.#failure)
      return this.#done ? Cause.done() : reading
    })
    return next
  }

  /** Reads the next frames. Succeeds with `undefined` after the final one. */
  next(): Effect.Effect<Frames | undefined, BackendFailed | TransportError | Unavailable> {
    return Pull.catchDone(
      this.#pull((error) => error),
      () => Effect.undefined
    )
  }

  /** The stream of `first` and all later frames. It can be run once. */
  rest(first: Frames): Stream.Stream<Frame, Failure> {
    this.#held = first
    return fromSource(() => this)
  }

  pull(): Pull.Pull<Frames, Failure> {
    const frames = this.#takeHeld()
    return frames === undefined ? this.#pull(fromTransport) : Effect.succeed(frames)
  }

  onReady(wake: (() => void) | undefined): void {
    this.#call.onReady(wake)
  }

  /** The call ends with the share of its memory (`client.ts`), because a stream may be left before it is run. */
  close(): undefined {}

  #takeHeld(): Frames | undefined {
    const frames = this.#held
    this.#held = undefined
    return frames
  }

  /** Takes the frames that are there. Failures, the end, and bytes for which there is no memory are left to `#pull`. */
  poll(): Frames | NoChunk {
    const held = this.#takeHeld()
    if (held !== undefined) return held
    while (this.#failure === undefined) {
      if (this.#done) return "ended"
      const { waiting } = this.#call
      if (waiting === 0) return this.#call.isOver ? "blocked" : "waiting"
      if (!this.#share.tryCollect(this.#folded + this.#lines.pending + waiting)) return "blocked"
      const frames = this.#read(this.#call.takeWaiting() ?? [])
      if (Arr.isReadonlyArrayNonEmpty(frames)) return frames
    }
    return "blocked"
  }

  /** The memory needed after `bytes` are added to the incomplete line. */
  #neededFor(bytes: ReadonlyArray<Buffer>): number {
    let size = this.#lines.pending
    for (const { length } of bytes) size += length
    return this.#folded + size
  }

  #read(bytes: ReadonlyArray<Buffer>): ReadonlyArray<Frame> {
    const frames: Array<Frame> = []
    for (const chunk of bytes) {
      this.#bytes += chunk.length
      if (this.#bytes > this.#bounds.bytes) {
        this.#fail("protocol", new Error(`answer of more than ${this.#bounds.bytes} bytes`))
        break
      }
      const lines = this.#lines.push(chunk)
      if (lines instanceof LineTooLong) this.#fail("protocol", lines)
      else this.#decode(lines, frames)
      if (this.#done || this.#failure !== undefined) break
    }
    return frames
  }

  #finish(): ReadonlyArray<Frame> {
    const frames: Array<Frame> = []
    this.#decode(this.#lines.end(), frames)
    if (this.#done || this.#failure !== undefined) return frames
    const ended = new Error("ended without its final frame")
    if (!this.#delimited) this.#fail("cut", ended)
    else if (this.#lastAt !== undefined) this.#stop(frames)
    else this.#fail(this.#streamed ? "empty" : "cut", ended)
    return frames
  }

  /** Adds the final frame that the backend did not send. */
  #stop(frames: Array<Frame>): void {
    this.#done = true
    frames.push({ createdAt: this.#lastAt ?? epoch, text: "", done: true, doneReason: "length" })
  }

  #decode(lines: ReadonlyArray<string>, frames: Array<Frame>): void {
    for (const line of lines) {
      if (isTooDense(line)) {
        return this.#fail("protocol", new Error(`more than ${maxContainers} objects and lists in a line`))
      }
      const frame = decodeFrame(this.#kind, line)
      if (frame instanceof ErrorLine) {
        if (!isRepeatLimit(frame.text)) return this.#failWith(fromErrorLine(frame.text))
        this.#stop(frames)
        return this.#call.finish()
      }
      if (frame instanceof Malformed)
        return this.#fail("protocol", new Error(`malformed frame: ${frame.why}`))
      this.#count += 1
      if (this.#count > this.#bounds.frames)
        return this.#fail("protocol", new Error(`more than ${this.#bounds.frames} frames`))
      frames.push(frame)
      if (this.#isFolded) this.#folded += foldedBytesOf(frame, line.length)
      this.#lastAt = frame.createdAt
      if (frame.done) {
        this.#done = true
        return this.#call.finish()
      }
    }
  }

  #fail(fault: "protocol" | "cut" | "empty", cause: Error): void {
    this.#failWith(new BackendFailed({ fault, cause }))
  }

  #failWith(failure: BackendFailed): void {
    this.#failure ??= failure
    // The connection is in an unknown state and must not be reused.
    this.#call.abort(failure)
  }
}
