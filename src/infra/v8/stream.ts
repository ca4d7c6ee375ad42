/**
 * Streams of a request. To other code they are ordinary streams of Effect.
 *
 * Their chunks are passed on without a fiber while nothing has to be waited for but the next chunk. A stream has a `Source`
 * for each of its runs. `poll` takes what is there, in the callback of the socket. Everything else is left to `pull`, in the
 * fiber of the run: a failure, a question to a store, a wait for memory. `runChunks` polls, and resumes the fiber only for
 * these and at the end (`bench/RESULTS.md` has the gain).
 *
 * They also keep less memory. Effect sets the transform of a channel with `self.transform = (upstream, scope) => …`. V8 puts a
 * function literal that is assigned to a property into old space at once, because it looks like a method
 * (`CheckAssigningFunctionLiteralToProperty` in its parser). Only a full collection cleans old space, so until then
 * everything the function refers to, here a whole request, stays in memory. Without this a scavenge takes half as long, and a
 * stream of three frames a tenth less.
 */
import { type Array as Arr, Channel, Effect, Exit, Pull, Scope, Stream } from "effect"
import { unlessVoid } from "./unlessVoid.ts"

export type Chunk<A> = Arr.NonEmptyReadonlyArray<A>

/** Why `poll` has no chunk: nothing has come yet; the next step is one for `pull`; or the stream is over. */
export type NoChunk = "waiting" | "blocked" | "ended"

/** One run of a stream. */
export interface Source<A, E> {
  /** Takes the next chunk. It must not throw, and does not wait. */
  poll(): Chunk<A> | NoChunk
  /** The next chunk, the failure or the end. After `blocked` it must be run before the next `poll`. */
  pull(): Pull.Pull<Chunk<A>, E>
  /** Calls `wake` whenever there may be more to poll. `undefined`: no longer. Used after `waiting` only. */
  onReady(wake: (() => void) | undefined): void
  /** Is called once, at the end of the run. Returns what must be done then. */
  close(exit: Exit.Exit<unknown, unknown>): Effect.Effect<void> | undefined
}

interface Opens<A, E> {
  readonly open: () => Source<A, E>
}

type Chunks<A, E> = Channel.Channel<Chunk<A>, E, void, unknown, unknown, unknown>

/** The prototype of our channels. Only `transform` and `open` are their own. */
const prototype = Channel.fromTransform(Effect.succeed)

/** A stream that makes its source for each run. */
export const fromSource = <A, E>(open: () => Source<A, E>): Stream.Stream<A, E> => {
  const transform = (_upstream: unknown, scope: Scope.Scope) =>
    Effect.suspend(() => {
      const source = open()
      return Effect.as(
        Scope.addFinalizerExit(scope, (exit) => source.close(exit) ?? Effect.void),
        Effect.suspend(() => source.pull())
      )
    })
  const channel: Chunks<A, E> = Object.assign(Object.create(prototype), { transform, open })
  return Stream.fromChannel(channel)
}

const opens = <A, E>(channel: Chunks<A, E>): channel is Chunks<A, E> & Opens<A, E> => "open" in channel

/** A run of a stream that was made elsewhere. It is always pulled. */
class Pulled<A, E> implements Source<A, E> {
  readonly #scope = Scope.makeUnsafe()
  readonly #channel: Chunks<A, E>
  #opened: Pull.Pull<Chunk<A>, E> | undefined

  constructor(channel: Chunks<A, E>) {
    this.#channel = channel
  }

  pull(): Pull.Pull<Chunk<A>, E> {
    return (
      this.#opened ??
      Effect.flatMap(Channel.toPullScoped(this.#channel, this.#scope), (pull) => {
        this.#opened = pull
        return pull
      })
    )
  }

  poll(): NoChunk {
    return "blocked"
  }

  onReady(): void {}

  close(exit: Exit.Exit<unknown, unknown>): Effect.Effect<void> | undefined {
    return Scope.closeUnsafe(this.#scope, exit)
  }
}

/** The source of a run of any stream. */
export const sourceOf = <A, E>({ channel }: Stream.Stream<A, E>): Source<A, E> =>
  opens(channel) ? channel.open() : new Pulled(channel)

/** `f` makes the source of the new stream from that of `self`, once for each run, and closes it. */
export const transformSource = <A, E, B, E2>(
  self: Stream.Stream<A, E>,
  f: (source: Source<A, E>) => Source<B, E2>
): Stream.Stream<B, E2> => fromSource(() => f(sourceOf(self)))

/**
 * Runs a stream. `write` takes each chunk, and returns what must be waited for before the next one: `undefined` when there
 * is room for more.
 */
export const runChunks = <A, E, E2 = never>(
  self: Stream.Stream<A, E>,
  write: (chunk: Chunk<A>) => Effect.Effect<void, E2> | undefined
): Effect.Effect<void, E | E2> =>
  Effect.suspend(() => {
    const source = sourceOf(self)
    const rest = pump(source, write)
    if (rest !== Effect.void) return Effect.onExitPrimitive(rest, (exit) => unlessVoid(source.close(exit)))
    // All chunks were there, so nothing is waited for.
    const closing = unlessVoid(source.close(Exit.void))
    return closing === undefined ? Effect.void : Effect.uninterruptible(closing)
  })

/** Passes on the chunks that are there, and returns what passes on the others: `Effect.void` when the stream is over. */
const pump = <A, E, E2>(
  source: Source<A, E>,
  write: (chunk: Chunk<A>) => Effect.Effect<void, E2> | undefined
): Effect.Effect<void, E | E2> => {
  type Step = Effect.Effect<void, E | E2>
  /** Returns `undefined` when the next chunk has to be waited for. */
  const poll = (): Step | undefined => {
    try {
      for (;;) {
        const next = source.poll()
        if (next === "waiting") return undefined
        if (next === "blocked") return pulling()
        if (next === "ended") return Effect.void
        const full = write(next)
        if (full !== undefined) return Effect.andThen(full, polling)
      }
    } catch (defect) {
      return Effect.die(defect)
    }
  }
  const waiting: Step = Effect.callback((resume) => {
    const wake = (): void => {
      const next = poll()
      if (next === undefined) return
      source.onReady(undefined)
      resume(next)
    }
    // The fiber may have yielded since the last poll. Nobody was woken by what came meanwhile.
    const next = poll()
    if (next !== undefined) return resume(next)
    source.onReady(wake)
    return Effect.sync(() => source.onReady(undefined))
  })
  const polling: Step = Effect.suspend(() => poll() ?? waiting)
  const pulling = (): Step =>
    Pull.matchEffect(source.pull(), {
      onSuccess: (chunk): Step => {
        const full = write(chunk)
        return full === undefined ? polling : Effect.andThen(full, polling)
      },
      onFailure: Effect.failCause,
      onDone: () => Effect.void
    })
  return poll() ?? waiting
}
