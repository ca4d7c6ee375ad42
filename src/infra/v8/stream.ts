/**
 * Streams of a request. To other code they are ordinary streams of Effect.
 *
 * Their chunks are passed on without a fiber while nothing has to be waited for but the next chunk. A stream has a `Source`
 * for each of its runs. `poll` takes what is there, in the callback of the socket. Everything else is left to `pull`, in the
 * fiber of the run: a failure, the end, a question to a store, a wait for memory. `runChunks` polls, and resumes the fiber
 * only for these (`bench/RESULTS.md` has the gain).
 *
 * They also keep less memory. Effect sets the transform of a channel with `self.transform = (upstream, scope) => …`. V8 puts a
 * function literal that is assigned to a property into old space at once, because it looks like a method
 * (`CheckAssigningFunctionLiteralToProperty` in its parser). Only a full collection cleans old space, so until then
 * everything the function refers to, here a whole request, stays in memory. Without this a scavenge takes half as long, and a
 * stream of three frames a tenth less.
 */
import { type Array as Arr, Channel, Effect, Pull, Scope, Stream } from "effect"

export type Chunk<A> = Arr.NonEmptyReadonlyArray<A>

/** Why `poll` has no chunk: nothing has come yet; or the next step is one for `pull`. */
export type NoChunk = "waiting" | "blocked"

/** One run of a stream. */
export interface Source<A, E> {
  /** Takes the next chunk. It must not throw, and does not wait. */
  poll(): Chunk<A> | NoChunk
  /** The next chunk, the failure or the end. After `blocked` it must be run before the next `poll`. */
  readonly pull: Pull.Pull<Chunk<A>, E>
  /** Calls `wake` whenever there may be more to poll. `undefined`: no longer. Used after `waiting` only. */
  onReady(wake: (() => void) | undefined): void
}

interface Opens<A, E> {
  readonly open: (scope: Scope.Scope) => Effect.Effect<Source<A, E>>
}

type Chunks<A, E> = Channel.Channel<Chunk<A>, E, void, unknown, unknown, unknown>

/** The prototype of our channels. Only `transform` and `open` are their own. */
const prototype = Channel.fromTransform(Effect.succeed)

/** A stream that makes its source for each run, in the scope of the run. */
export const fromSource = <A, E>(open: Opens<A, E>["open"]): Stream.Stream<A, E> => {
  const transform = (_upstream: unknown, scope: Scope.Scope) => Effect.map(open(scope), ({ pull }) => pull)
  const channel: Chunks<A, E> = Object.assign(Object.create(prototype), { transform, open })
  return Stream.fromChannel(channel)
}

const opens = <A, E>(channel: Chunks<A, E>): channel is Chunks<A, E> & Opens<A, E> => "open" in channel

/** The source of a run of any stream. A stream that was made elsewhere is always pulled. */
export const sourceOf = <A, E>(
  { channel }: Stream.Stream<A, E>,
  scope: Scope.Scope
): Effect.Effect<Source<A, E>> =>
  opens(channel)
    ? channel.open(scope)
    : Effect.map(Channel.toPullScoped(channel, scope), (pull) => ({
        poll: () => "blocked",
        pull,
        onReady: () => undefined
      }))

/** `f` makes the source of the new stream from that of `self`, once for each run, in the scope of the run. */
export const transformSource = <A, E, B, E2>(
  self: Stream.Stream<A, E>,
  f: (source: Source<A, E>, scope: Scope.Scope) => Effect.Effect<Source<B, E2>>
): Stream.Stream<B, E2> =>
  fromSource((scope) => Effect.flatMap(sourceOf(self, scope), (source) => f(source, scope)))

/**
 * Runs a stream. `write` takes each chunk, and returns what must be waited for before the next one: `undefined` when there
 * is room for more.
 */
export const runChunks = <A, E, E2 = never>(
  self: Stream.Stream<A, E>,
  write: (chunk: Chunk<A>) => Effect.Effect<void, E2> | undefined
): Effect.Effect<void, E | E2> =>
  Effect.suspend(() => {
    const scope = Scope.makeUnsafe()
    return Effect.flatMap(sourceOf(self, scope), (source) =>
      Pull.catchDone(pump(source, write), () => Effect.void)
    ).pipe(Effect.onExit((exit) => Scope.close(scope, exit)))
  })

/** Passes on all chunks. It ends as the source does. */
const pump = <A, E, E2>(
  source: Source<A, E>,
  write: (chunk: Chunk<A>) => Effect.Effect<void, E2> | undefined
): Pull.Pull<never, E | E2> => {
  type Step = Pull.Pull<never, E | E2>
  const polling: Step = Effect.callback((resume) => {
    const poll = (): void => {
      try {
        for (;;) {
          const next = source.poll()
          if (next === "waiting") return source.onReady(poll)
          const full = next === "blocked" ? undefined : write(next)
          if (next !== "blocked" && full === undefined) continue
          source.onReady(undefined)
          return resume(full === undefined ? pulling : Effect.andThen(full, polling))
        }
      } catch (defect) {
        source.onReady(undefined)
        return resume(Effect.die(defect))
      }
    }
    poll()
    return Effect.sync(() => source.onReady(undefined))
  })
  const pulling: Step = Effect.flatMap(source.pull, (chunk) => {
    const full = write(chunk)
    return full === undefined ? polling : Effect.andThen(full, polling)
  })
  return polling
}
