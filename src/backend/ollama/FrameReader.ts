/**
 * Reads frames from the bytes of a response, one array for each read, up to the final frame. Everything after it is
 * ignored.
 *
 * Ollama ends an answer without a final frame when the model repeats itself (31 equal tokens, for example in a loop
 * in JSON mode). When such an end is clean HTTP, the gateway adds a final frame: `length`, without counts. Without
 * any frame before it the call has failed, but it is no failure of the server.
 */
import { Cause, Effect, Pull, type Stream } from "effect"
import { BackendFailed, type ShuttingDown, type Unavailable } from "../../domain/Errors.ts"
import type { Frame } from "../../domain/Frame.ts"
import * as YoungStream from "../../infra/v8/stream.ts"
import type { AnswerShare } from "../AnswerMemory.ts"
import { type FrameBounds, foldedBytesOf, isTooDense, mostContainers } from "../answerBounds.ts"
import { decodeFrame, epoch, ErrorLine, type FrameKind, Malformed } from "./decodeFrame.ts"
import { ofErrorLine, fromTransport } from "./errors.ts"
import { LineSplitter, LineTooLong } from "./LineSplitter.ts"
import { isRepeatLimit } from "./refusals.ts"
import { type Head, type UpstreamCall, TransportError } from "./UpstreamCall.ts"

export type Frames = readonly [Frame, ...Array<Frame>]

/** How much of an answer is taken, and where its memory comes from. */
export interface Taken {
  readonly bounds: FrameBounds
  readonly share: AnswerShare
  /** whether all of it is kept until its end, to be one object */
  readonly isFolded: boolean
}

export class FrameReader {
  readonly #wire: UpstreamCall
  readonly #kind: FrameKind
  readonly #delimited: boolean
  readonly #streamed: boolean
  readonly #bounds: FrameBounds
  readonly #share: AnswerShare
  readonly #isFolded: boolean
  readonly #lines: LineSplitter
  /** bytes that are kept of the frames so far */
  #folded = 0
  #bytes = 0
  #count = 0
  #failure: BackendFailed | undefined
  #done = false
  /** Time of the last frame, as the backend told it. */
  #lastAt: string | undefined

  constructor(wire: UpstreamCall, kind: FrameKind, head: Head, { bounds, isFolded, share }: Taken) {
    this.#wire = wire
    this.#bounds = bounds
    this.#share = share
    this.#isFolded = isFolded
    this.#lines = new LineSplitter(bounds.lineBytes)
    this.#kind = kind
    this.#delimited = head.delimited
    this.#streamed = head.contentType.startsWith("application/x-ndjson")
  }

  /**
   * The frames of each read, up to the final one. `lost` names a connection that broke. It runs for every chunk of every
   * stream, so it takes no more steps than it must. What has been read waits here for memory, and no more is read meanwhile.
   */
  #pull<E>(lost: (error: TransportError) => E): Pull.Pull<Frames, BackendFailed | Unavailable | E> {
    type Next = Pull.Pull<Frames, BackendFailed | Unavailable | E>
    const framesOf = (bytes: ReadonlyArray<Buffer>): Next => {
      const [first, ...rest] = bytes.length > 0 ? this.#read(bytes) : this.#finish()
      // Frames that came before a failure go out before it.
      return first === undefined ? next : Effect.succeed<Frames>([first, ...rest])
    }
    const reading = Effect.flatMap(this.#wire.chunks, (bytes): Next => {
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

  /** The next frames, or `undefined` after the final one; a lost connection is told as it was. */
  get next(): Effect.Effect<Frames | undefined, BackendFailed | TransportError | Unavailable> {
    return Pull.catchDone(
      this.#pull((error) => error),
      () => Effect.undefined
    )
  }

  /** The stream from `first` on. It can be run once. */
  rest(first: Frames): Stream.Stream<Frame, BackendFailed | ShuttingDown | Unavailable> {
    const next = this.#pull(fromTransport)
    let held: Frames | undefined = first
    const start = Effect.suspend(() => {
      if (held === undefined) return next
      const frames = held
      held = undefined
      return Effect.succeed(frames)
    })
    return YoungStream.fromPull(start)
  }

  /** Memory for what is kept so far and the line under way, when `bytes` belong to it. */
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
        this.#fail(
          "protocol",
          new Error(`the answer is larger than the ${this.#bounds.bytes} bytes it may have`)
        )
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

  /** Adds a final frame in the backend's place. */
  #stop(frames: Array<Frame>): void {
    this.#done = true
    frames.push({ createdAt: this.#lastAt ?? epoch, text: "", done: true, doneReason: "length" })
  }

  #decode(lines: ReadonlyArray<string>, frames: Array<Frame>): void {
    for (const line of lines) {
      if (isTooDense(line)) {
        return this.#fail("protocol", new Error(`more than ${mostContainers} objects and lists in a line`))
      }
      const frame = decodeFrame(this.#kind, line)
      if (frame instanceof ErrorLine) {
        if (!isRepeatLimit(frame.text)) return this.#failWith(ofErrorLine(frame.text))
        this.#stop(frames)
        return this.#wire.finish()
      }
      if (frame instanceof Malformed)
        return this.#fail("protocol", new Error(`malformed frame: ${frame.why}`))
      this.#count += 1
      if (this.#count > this.#bounds.frames)
        return this.#fail("protocol", new Error(`more than the ${this.#bounds.frames} frames it may have`))
      frames.push(frame)
      if (this.#isFolded) this.#folded += foldedBytesOf(frame, line.length)
      this.#lastAt = frame.createdAt
      if (frame.done) {
        this.#done = true
        return this.#wire.finish()
      }
    }
  }

  #fail(fault: "protocol" | "cut" | "empty", cause: Error): void {
    this.#failWith(new BackendFailed({ fault, cause }))
  }

  #failWith(failure: BackendFailed): void {
    this.#failure ??= failure
    // Nothing after this can be trusted, so the connection is not kept either.
    this.#wire.abort(failure)
  }
}
