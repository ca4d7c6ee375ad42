/**
 * The frames of a response, one chunk for each read, up to the final frame. What comes after it is discarded.
 *
 * Ollama ends an answer without a final frame when the model repeats itself (31 equal tokens, for example in a loop
 * in JSON mode). When such an end is clean HTTP, the gateway adds a final frame: `length`, without counts. If
 * there was no frame before it, the call has failed, but that does not count as a failure of the server.
 */
import { Array as Arr, Cause, Effect, type Pull } from "effect"
import { BackendFailed } from "../../domain/Errors.ts"
import type { AnswerPull, Frame } from "../../domain/Frame.ts"
import type { AnswerShare } from "../../memory/MemoryLedger.ts"
import { type FrameBounds, foldedBytesOf, isTooDense, maxContainers, maxToolCalls } from "../answerBounds.ts"
import { decodeFrame, epoch, ErrorLine, type FrameKind, Malformed } from "./decodeFrame.ts"
import { fromErrorLine, isRepeatLimit } from "./errors.ts"
import { endOfBody, type Head, type UpstreamCall } from "./UpstreamCall.ts"
import { freeBuffer } from "../../infra/freeBuffer.ts"
import { GrowingBuffer } from "../../infra/GrowingBuffer.ts"

/** Bounds of an answer, and the share that its memory is taken from. */
export interface AnswerLimits {
  readonly bounds: FrameBounds
  readonly share: AnswerShare
  /** whether the answer is collected and sent as one object */
  readonly isFolded: boolean
  /** called when frames come */
  readonly heard: () => void
}

/** The response that is read. */
export type Response = Pick<UpstreamCall, "abort" | "bytes" | "discard">

/** Pulls the frames of a response. While there is no memory for its bytes, nothing more is read. */
export const pullFrames = (call: Response, kind: FrameKind, head: Head, limits: AnswerLimits): AnswerPull => {
  const decoder = new FrameDecoder(call, kind, head, limits)
  const read = Effect.flatMap(call.bytes, (bytes) =>
    Effect.flatMapEager(limits.share.collect(decoder.memoryWith(bytes)), () => {
      const frames = decoder.read(bytes)
      return Arr.isReadonlyArrayNonEmpty(frames) ? Effect.succeed(frames) : next
    })
  )
  // Frames that came before the end go out before it.
  const next: AnswerPull = Effect.suspend(() => decoder.ending ?? read)
  return next
}

/** Decodes the bytes of one response. */
class FrameDecoder {
  readonly #call: Response
  readonly #kind: FrameKind
  readonly #head: Head
  readonly #limits: AnswerLimits
  readonly #lines: LineSplitter
  /** memory of the frames so far, when they are collected */
  #folded = 0
  #bytes = 0
  #count = 0
  #calls = 0
  /** how the frames end, once it is known */
  ending: Pull.Pull<never, BackendFailed> | undefined
  /** the backend's time of the last frame */
  #lastAt: string | undefined

  constructor(call: Response, kind: FrameKind, head: Head, limits: AnswerLimits) {
    this.#call = call
    this.#kind = kind
    this.#head = head
    this.#limits = limits
    this.#lines = new LineSplitter(limits.bounds.lineBytes)
  }

  /** The memory needed after `bytes` are added to the incomplete line. */
  memoryWith(bytes: ReadonlyArray<Buffer>): number {
    let size = 0
    for (const { length } of bytes) size += length
    return this.#folded + this.#lines.memoryWith(size)
  }

  /** The frames that `bytes` complete. */
  read(bytes: ReadonlyArray<Buffer>): ReadonlyArray<Frame> {
    const frames: Array<Frame> = []
    for (const chunk of bytes) {
      if (chunk === endOfBody) this.#end(frames)
      else this.#add(chunk, frames)
      if (this.ending !== undefined) break
    }
    if (frames.length > 0) this.#limits.heard()
    return frames
  }

  #add(chunk: Buffer, frames: Array<Frame>): void {
    this.#bytes += chunk.length
    if (this.#bytes > this.#limits.bounds.bytes)
      return this.#fail("protocol", new Error(`answer of more than ${this.#limits.bounds.bytes} bytes`))
    const lines = this.#lines.push(chunk)
    return lines === undefined
      ? this.#fail("protocol", new Error(`line longer than ${this.#limits.bounds.lineBytes} bytes`))
      : this.#decode(lines, frames)
  }

  /** The body is complete. */
  #end(frames: Array<Frame>): void {
    this.#decode(this.#lines.end(), frames)
    if (this.ending !== undefined) return
    const ended = new Error("ended without its final frame")
    if (!this.#head.delimited) this.#fail("cut", ended)
    else if (this.#lastAt !== undefined) this.#stop(frames)
    else this.#fail(this.#head.contentType.startsWith("application/x-ndjson") ? "empty" : "cut", ended)
  }

  #decode(lines: ReadonlyArray<string>, frames: Array<Frame>): void {
    for (const line of lines) {
      if (isTooDense(line)) {
        return this.#fail("protocol", new Error(`more than ${maxContainers} objects and lists in a line`))
      }
      const frame = decodeFrame(this.#kind, line)
      if (frame instanceof ErrorLine) {
        return isRepeatLimit(frame.text) ? this.#stop(frames) : this.#failWith(fromErrorLine(frame.text))
      }
      if (frame instanceof Malformed)
        return this.#fail("protocol", new Error(`malformed frame: ${frame.why}`))
      this.#count += 1
      if (this.#count > this.#limits.bounds.frames)
        return this.#fail("protocol", new Error(`more than ${this.#limits.bounds.frames} frames`))
      this.#calls += frame.toolCalls?.length ?? 0
      if (this.#calls > maxToolCalls)
        return this.#fail("protocol", new Error(`more than ${maxToolCalls} tool calls`))
      frames.push(frame)
      if (this.#limits.isFolded) this.#folded += foldedBytesOf(frame, line.length)
      this.#lastAt = frame.createdAt
      if (frame.done) return this.#complete()
    }
  }

  /** Adds the final frame that the backend did not send. */
  #stop(frames: Array<Frame>): void {
    frames.push({ createdAt: this.#lastAt ?? epoch, text: "", done: true, doneReason: "length" })
    this.#complete()
  }

  #complete(): void {
    this.ending = Cause.done()
    this.#call.discard()
  }

  #fail(fault: "protocol" | "cut" | "empty", cause: Error): void {
    this.#failWith(new BackendFailed({ fault, cause }))
  }

  #failWith(failure: BackendFailed): void {
    this.ending = Effect.fail(failure)
    // The connection is in an unknown state and must not be reused.
    this.#call.abort(failure)
  }
}

const newline = 0x0a

/**
 * Splits bytes into lines at `\n`. It splits bytes and not text, because a chunk may end inside a character. It keeps
 * only the incomplete line.
 */
export class LineSplitter {
  readonly #limit: number
  /** the incomplete line */
  #pending: GrowingBuffer | undefined

  /** `limit`: of a line, in bytes */
  constructor(limit: number) {
    this.#limit = limit
  }

  /** the memory for the incomplete line and `more` bytes of it */
  memoryWith(more: number): number {
    return this.#pending?.memoryWith(more) ?? more
  }

  /**
   * Returns the lines that `chunk` completes, without blank ones; undefined: one is too long. A `\r` before the `\n` stays, which
   * JSON allows.
   */
  push(chunk: Buffer): ReadonlyArray<string> | undefined {
    const first = chunk.indexOf(newline)
    if ((this.#pending?.size ?? 0) + (first === -1 ? chunk.length : first) > this.#limit) return undefined
    if (first === -1) {
      this.#keep(chunk)
      return []
    }
    const last = chunk.lastIndexOf(newline)
    const complete = this.#join(chunk.subarray(0, last))
    if (last + 1 < chunk.length) this.#keep(chunk.subarray(last + 1))
    return complete.split("\n").filter(isNotBlank)
  }

  /** Returns the last line, if it has no `\n`. */
  end(): ReadonlyArray<string> {
    return [this.#join(Buffer.alloc(0))].filter(isNotBlank)
  }

  #keep(part: Buffer): void {
    this.#pending ??= new GrowingBuffer()
    this.#pending.push(part)
  }

  #join(tail: Buffer): string {
    const pending = this.#pending
    if (pending === undefined) return tail.toString("utf8")
    this.#pending = undefined
    pending.push(tail)
    const bytes = pending.exact()
    const text = bytes.toString("utf8")
    freeBuffer(bytes)
    return text
  }
}

const isNotBlank = (line: string): boolean => line.length > 2 || line.trim() !== ""
