/**
 * `Stream.fromPull` and `Stream.transformPull` for streams of a request. They do the same, but keep less memory. Effect sets
 * the transform of a channel with `self.transform = (upstream, scope) => …`. V8 puts a function literal that is assigned to
 * a property into old space at once, because it looks like a method (`CheckAssigningFunctionLiteralToProperty` in its
 * parser). Only a full collection cleans old space, so until then everything the function refers to, here a whole request,
 * stays in memory. Without this a scavenge takes half as long, and a stream of three frames a tenth less
 * (`bench/RESULTS.md`).
 */
import { type Array as Arr, Channel, Effect, type Pull, type Scope, Stream } from "effect"

type Chunk<A> = Arr.NonEmptyReadonlyArray<A>
type Chunks<A, E> = Pull.Pull<Chunk<A>, E>

/** The prototype of our channels. Only their transform is their own. */
const prototype = Channel.fromTransform(Effect.succeed)

const streamOf = <A, E>(
  transform: (upstream: unknown, scope: Scope.Scope) => Effect.Effect<Chunks<A, E>>
): Stream.Stream<A, Pull.ExcludeDone<E>> => {
  const channel: Channel.Channel<
    Chunk<A>,
    Pull.ExcludeDone<E>,
    void,
    unknown,
    unknown,
    unknown
  > = Object.assign(Object.create(prototype), { transform })
  return Stream.fromChannel(channel)
}

/** A stream of the chunks of `pull`. */
export const fromPull = <A, E>(pull: Chunks<A, E>): Stream.Stream<A, Pull.ExcludeDone<E>> => {
  const ready = Effect.succeed(pull)
  return streamOf(() => ready)
}

/** `f` makes the pull of the new stream from that of `self`, once for each run, in the scope of the run. */
export const transformPull = <A, E, B, E2>(
  self: Stream.Stream<A, E>,
  f: (pull: Chunks<A, E>, scope: Scope.Scope) => Effect.Effect<Chunks<B, E2>>
): Stream.Stream<B, Pull.ExcludeDone<E2>> =>
  streamOf((_upstream, scope) =>
    Effect.flatMap(Channel.toPullScoped(self.channel, scope), (pull) => f(pull, scope))
  )
