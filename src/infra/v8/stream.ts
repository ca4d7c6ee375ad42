/**
 * `Stream.fromPull` and `Stream.transformPull` for streams that are made anew with every request; the same but for where
 * they are kept. Effect gives a channel its transform as `self.transform = (upstream, scope) => …`, and V8 puts a function
 * that is written where it is assigned to a property among its old objects at once, since it looks like a method
 * (`CheckAssigningFunctionLiteralToProperty` of its parser). The old are only looked through by a full collection: until
 * the next one all that such a function has to do with, here a whole request, is kept and copied about. Without it a
 * scavenge takes half as long, and a stream of three frames a tenth less (`bench/RESULTS.md`).
 */
import { type Array as Arr, Channel, Effect, type Pull, type Scope, Stream } from "effect"

type Chunk<A> = Arr.NonEmptyReadonlyArray<A>
type Chunks<A, E> = Pull.Pull<Chunk<A>, E>

/** What channels of ours descend from: only their transform is their own. */
const ancestor = Channel.fromTransform(Effect.succeed)

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
  > = Object.assign(Object.create(ancestor), { transform })
  return Stream.fromChannel(channel)
}

/** The stream of what `pull` gives. */
export const fromPull = <A, E>(pull: Chunks<A, E>): Stream.Stream<A, Pull.ExcludeDone<E>> => {
  const ready = Effect.succeed(pull)
  return streamOf(() => ready)
}

/** `f` makes the pull of the new stream of that of `self`, once for each run; the scope is the run's. */
export const transformPull = <A, E, B, E2>(
  self: Stream.Stream<A, E>,
  f: (pull: Chunks<A, E>, scope: Scope.Scope) => Effect.Effect<Chunks<B, E2>>
): Stream.Stream<B, Pull.ExcludeDone<E2>> =>
  streamOf((_upstream, scope) =>
    Effect.flatMap(Channel.toPullScoped(self.channel, scope), (pull) => f(pull, scope))
  )
