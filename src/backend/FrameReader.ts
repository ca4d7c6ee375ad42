/** A response's bytes into frames, one array per read, up to the final one; what comes after it is not looked at. */
import { Cause, Effect, Pull, Stream } from "effect"
import { BackendFailed, type ShuttingDown } from "../domain/Errors.ts"
import type { Frame } from "../domain/Frame.ts"
import { decodeFrame, ErrorLine, type FrameKind, Malformed } from "./decodeFrame.ts"
import { ofWire } from "./faults.ts"
import { Lines, LineTooLong } from "./lines.ts"
import { type Wire, WireError } from "./Wire.ts"

export type Frames = readonly [Frame, ...Array<Frame>]

/** The first frames of an answer, and who reads the others. */
export interface Answer {
  readonly first: Frames
  readonly reader: FrameReader
}

/** Told how an answer ended: in this error, or well. Not told when nobody wanted the rest of it. */
export type Ended = (error?: BackendFailed | ShuttingDown) => Effect.Effect<void>

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
   * The frames of each read, up to the final one; a response that ends without it was cut. It runs for every chunk of
   * every stream, so it takes no more steps than it must.
   */
  #pull<E>(
    giving: (frames: Frames) => Effect.Effect<Frames>,
    failing: (error: BackendFailed | WireError) => Effect.Effect<never, E>
  ): Pull.Pull<Frames, E> {
    const reading = Effect.flatMap(this.#wire.taken, (bytes): Pull.Pull<Frames, E> => {
      if (bytes instanceof WireError) return failing(bytes)
      const [first, ...rest] = bytes.length > 0 ? this.#read(bytes) : this.#finish()
      // Frames that came before a failure go out before it.
      return first === undefined ? next : giving([first, ...rest])
    })
    const next = Effect.suspend((): Pull.Pull<Frames, E> => {
      if (this.#failure !== undefined) return failing(this.#failure)
      return this.#done ? Cause.done() : reading
    })
    return next
  }

  /** The next frames, or `undefined` after the final one; a lost connection is told as it was. */
  get next(): Effect.Effect<Frames | undefined, BackendFailed | WireError> {
    return Pull.catchDone(this.#pull(Effect.succeed, Effect.fail), () => Effect.undefined)
  }

  /** The whole answer, its first frames included. It can be run once. */
  stream(first: Frames, ended: Ended): Stream.Stream<Frame, BackendFailed | ShuttingDown> {
    const giving = (frames: Frames) => (this.#done ? Effect.as(ended(), frames) : Effect.succeed(frames))
    const next = this.#pull(giving, (error) => {
      const refused = error instanceof WireError ? ofWire(error) : error
      return Effect.andThen(ended(refused), Effect.fail(refused))
    })
    let held: Frames | undefined = first
    const start = Effect.suspend(() => {
      if (held === undefined) return next
      const frames = held
      held = undefined
      return giving(frames)
    })
    return Stream.fromPull(Effect.succeed(start))
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
