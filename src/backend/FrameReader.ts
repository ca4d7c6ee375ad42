/** A response's bytes into frames, one array per read, up to the final one; what comes after it is not looked at. */
import { Cause, Effect, Pull, type Stream } from "effect"
import { BackendFailed, type ShuttingDown } from "../domain/Errors.ts"
import type { Frame } from "../domain/Frame.ts"
import * as YoungStream from "../infra/YoungStream.ts"
import { decodeFrame, ErrorLine, type FrameKind, Malformed } from "./decodeFrame.ts"
import { ofWire } from "./faults.ts"
import { Lines, LineTooLong } from "./lines.ts"
import { type Wire, WireError } from "./Wire.ts"

export type Frames = readonly [Frame, ...Array<Frame>]

export class FrameReader {
  readonly #wire: Wire
  readonly #kind: FrameKind
  readonly #lines = new Lines()
  #failure: BackendFailed | undefined
  #done = false

  constructor(wire: Wire, kind: FrameKind) {
    this.#wire = wire
    this.#kind = kind
  }

  /**
   * The frames of each read, up to the final one; a response that ends without it was cut. `lost` names a connection
   * that broke. It runs for every chunk of every stream, so it takes no more steps than it must.
   */
  #pull<E>(lost: (error: WireError) => E): Pull.Pull<Frames, BackendFailed | E> {
    const reading = Effect.flatMap(this.#wire.taken, (bytes): Pull.Pull<Frames, BackendFailed | E> => {
      if (bytes instanceof WireError) return Effect.fail(lost(bytes))
      const [first, ...rest] = bytes.length > 0 ? this.#read(bytes) : this.#finish()
      // Frames that came before a failure go out before it.
      return first === undefined ? next : Effect.succeed<Frames>([first, ...rest])
    })
    const next = Effect.suspend((): Pull.Pull<Frames, BackendFailed | E> => {
      if (this.#failure !== undefined) return Effect.fail(this.#failure)
      return this.#done ? Cause.done() : reading
    })
    return next
  }

  /** The next frames, or `undefined` after the final one; a lost connection is told as it was. */
  get next(): Effect.Effect<Frames | undefined, BackendFailed | WireError> {
    return Pull.catchDone(
      this.#pull((error) => error),
      () => Effect.undefined
    )
  }

  /** The stream from `first` on. It can be run once. */
  rest(first: Frames): Stream.Stream<Frame, BackendFailed | ShuttingDown> {
    const next = this.#pull(ofWire)
    let held: Frames | undefined = first
    const start = Effect.suspend(() => {
      if (held === undefined) return next
      const frames = held
      held = undefined
      return Effect.succeed(frames)
    })
    return YoungStream.fromPull(start)
  }

  #read(bytes: ReadonlyArray<Buffer>): ReadonlyArray<Frame> {
    const frames: Array<Frame> = []
    for (const chunk of bytes) {
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
    if (!this.#done) this.#fail("cut", new Error("ended without its final frame"))
    return frames
  }

  #decode(lines: ReadonlyArray<string>, frames: Array<Frame>): void {
    for (const line of lines) {
      const frame = decodeFrame(this.#kind, line)
      if (frame instanceof ErrorLine) return this.#fail("reported", new Error(frame.text.slice(0, 500)))
      if (frame instanceof Malformed)
        return this.#fail("protocol", new Error(`malformed frame: ${frame.why}`))
      frames.push(frame)
      if (frame.done) {
        this.#done = true
        return this.#wire.finish()
      }
    }
  }

  #fail(fault: "protocol" | "reported" | "cut", cause: Error): void {
    this.#failure ??= new BackendFailed({ fault, cause })
    // Nothing after this can be trusted, so the connection is not kept either.
    this.#wire.abort(cause)
  }
}
