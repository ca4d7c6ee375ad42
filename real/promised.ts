/** Client libraries speak promises and async iterables; tests speak Effect. */
import { Data, Effect } from "effect"

class Rejected extends Data.TaggedError("Rejected")<{ readonly reason: unknown }> {}

/** What `ask` comes to; a rejection fails the test. */
export const answered = <A>(ask: (signal: AbortSignal) => PromiseLike<A>): Effect.Effect<A> =>
  Effect.promise(ask)

/** What `ask` is rejected with; an answer fails the test. */
export const refused = (ask: () => PromiseLike<unknown>): Effect.Effect<unknown> =>
  Effect.tryPromise({ try: ask, catch: (reason) => new Rejected({ reason }) }).pipe(
    Effect.flip,
    Effect.map(({ reason }) => reason),
    Effect.catch((answer) => Effect.die(new Error(`not refused: ${JSON.stringify(answer)}`)))
  )

/** All that an iterable yields. */
export const collected = async <A>(parts: AsyncIterable<A>): Promise<ReadonlyArray<A>> => {
  const all: Array<A> = []
  for await (const part of parts) all.push(part)
  return all
}
