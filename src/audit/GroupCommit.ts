/**
 * Group commit: the first item is written at once, those that arrive while it is being written ride together in
 * the next write (Postgres and its kin do the same with their log). One write at a time, so a busy store gets
 * larger batches instead of more of them.
 *
 * A submitter that is interrupted leaves its item in the queue: what was submitted is written. A batch that the
 * store refuses is written once more item by item, so that a row nobody can write costs its neighbours nothing.
 */
import { Data, Deferred, Effect, Exit, type Scope } from "effect"

/** The queue is full: nothing was accepted. */
export class QueueFull extends Data.TaggedError("QueueFull")<{ readonly capacity: number }> {}

export interface GroupCommit<A, E> {
  /** Succeeds when the item is durable. */
  submit(item: A): Effect.Effect<void, E | QueueFull>
  /** items not yet durable, those being written included */
  readonly backlog: () => number
}

export interface GroupCommitOptions<A, E> {
  readonly write: (batch: ReadonlyArray<A>) => Effect.Effect<void, E>
  /** whether an error is about the rows themselves, so that writing them singly can help */
  readonly poisoned: (error: E) => boolean
  readonly maxBatch: number
  readonly capacity: number
}

interface Waiting<A, E> {
  readonly item: A
  readonly written: Deferred.Deferred<void, E>
}

export const makeGroupCommit = Effect.fnUntraced(function* <A, E>(
  options: GroupCommitOptions<A, E>
): Effect.fn.Return<GroupCommit<A, E>, never, Scope.Scope> {
  const scope = yield* Effect.scope
  let queue: Array<Waiting<A, E>> = []
  let writing = 0
  let busy = false

  const writeOne = (waiting: Waiting<A, E>): Effect.Effect<void> =>
    Effect.flatMap(Effect.exit(options.write([waiting.item])), (exit) => settle(waiting, exit))

  const settle = (waiting: Waiting<A, E>, exit: Exit.Exit<void, E>): Effect.Effect<void> =>
    Effect.asVoid(Deferred.done(waiting.written, exit))

  const writeBatch = Effect.fnUntraced(function* (batch: ReadonlyArray<Waiting<A, E>>) {
    const exit = yield* Effect.exit(options.write(batch.map((waiting) => waiting.item)))
    const rows = Exit.isFailure(exit) && exit.cause.reasons.some((reason) => reason._tag === "Fail" && options.poisoned(reason.error))
    if (rows && batch.length > 1) return yield* Effect.forEach(batch, writeOne, { discard: true })
    return yield* Effect.forEach(batch, (waiting) => settle(waiting, exit), { discard: true })
  })

  const drain: Effect.Effect<void> = Effect.gen(function* () {
    while (queue.length > 0) {
      const batch = queue.slice(0, options.maxBatch)
      queue = queue.slice(options.maxBatch)
      writing = batch.length
      yield* writeBatch(batch)
      writing = 0
    }
    busy = false
  })

  return {
    submit: Effect.fnUntraced(function* (item: A) {
      if (queue.length >= options.capacity) return yield* new QueueFull({ capacity: options.capacity })
      const written = yield* Deferred.make<void, E>()
      queue.push({ item, written })
      if (!busy) {
        busy = true
        yield* Effect.forkIn(Effect.uninterruptible(drain), scope)
      }
      return yield* Deferred.await(written)
    }),
    backlog: () => queue.length + writing
  }
})
