/**
 * Group commit, as databases do it for their log. Items that arrive in one turn of the event loop are written together at
 * its end. While all writers are busy, new items wait for the next write. A busy store thus gets larger batches, not more
 * batches.
 *
 * When a batch fails because of a row, each item is written alone, so a bad row does not affect the others. When a batch
 * fails because of the store, its submitters fail (`fail`), or its writer tries it again until it is written (`keep`).
 */
import { Cause, Data, Deferred, Effect, Exit, Fiber, Latch, Option, Queue, type Scope } from "effect"
import { Link, LinkedList } from "../infra/LinkedList.ts"
import { afterIo, makeMonotonicMs } from "../infra/time.ts"

/** The queue is full: nothing was accepted. */
export class QueueFull extends Data.TaggedError("QueueFull")<{ readonly capacity: number }> {}

/** The queue was closed before the item could be written. */
export class QueueClosed extends Data.TaggedError("QueueClosed")<{}> {}

/** The item did not become durable within the time limit of its submitter. */
export class Late extends Data.TaggedError("Late")<{
  /** The item is in the batch that is being written: a change of the item may come too late for that batch. */
  readonly isBeingWritten: boolean
}> {}

/** Waits until an accepted item is durable, or fails when it is late. */
export type Durable<E> = Effect.Effect<void, E | QueueClosed | Late>

export interface GroupCommit<A, E> {
  /** Accepts an item. It stays queued until it is written, whoever waits for it. */
  offer(item: A): Effect.Effect<Durable<E>, QueueFull | QueueClosed>
  /**
   * Accepts an item, and succeeds when it is durable. When the submitter is interrupted, or the item is late, an item that is
   * not being written yet is removed from the queue.
   */
  submit(item: A): Effect.Effect<void, E | QueueFull | QueueClosed | Late>
  /** number of items that are not durable yet, including those being written */
  readonly backlog: () => number
  /** how many milliseconds the oldest of them has waited; 0 when there is none */
  readonly lagMs: () => number
  /** Accepts no more items, waits at most `ms` for the accepted ones, and returns how many were lost. */
  close(ms: number): Effect.Effect<number>
}

export interface GroupCommitOptions<A, E> {
  readonly write: (batch: ReadonlyArray<A>) => Effect.Effect<void, E>
  /** whether an error is about a row: then writing each row alone helps, and a retry does not */
  readonly poisoned: (error: E) => boolean
  readonly onStoreFailure: "fail" | "keep"
  readonly maxBatch: number
  readonly capacity: number
  /** from when on an item is late for whoever waits for it, ms after it was accepted; default: never */
  readonly lateAfterMs?: number
  /** how many batches are written at a time; default 1. With 2, an item does not wait for the whole write before it. */
  readonly writers?: number
  /** called once for each item when it is durable or given up */
  readonly settled?: (item: A) => void
}

class Entry<A, E> {
  readonly item: A
  readonly since: number
  readonly result: Deferred.Deferred<void, E | QueueClosed | Late>
  /** its places in the lists below */
  readonly pending = new Link(this)
  readonly inTime = new Link(this)
  isBeingWritten = false

  constructor(item: A, since: number, result: Deferred.Deferred<void, E | QueueClosed | Late>) {
    this.item = item
    this.since = since
    this.result = result
  }
}

/** The first retry comes soon, so that a short failover is hardly noticed; later ones come every two seconds. */
const pauseMs = (failures: number): number => Math.min(2000, 100 * 2 ** (failures - 1))

/** The writers run until the scope closes. Close the queue before, so that what it has is written. */
export const makeGroupCommit = Effect.fnUntraced(function* <A, E>(
  options: GroupCommitOptions<A, E>
): Effect.fn.Return<GroupCommit<A, E>, never, Scope.Scope> {
  type Item = Entry<A, E>
  const now = yield* makeMonotonicMs
  const queue = yield* Queue.unbounded<Item, Cause.Done>()
  /** accepted, and neither durable nor given up, the oldest first */
  const pending = new LinkedList<Item>()
  /** those of them that are not late yet */
  const inTime = new LinkedList<Item>()

  const settle = (entry: Item, exit: Exit.Exit<void, E | QueueClosed>): Effect.Effect<void> =>
    Effect.suspend(() => {
      if (!pending.remove(entry.pending)) return Effect.void
      inTime.remove(entry.inTime)
      options.settled?.(entry.item)
      return Effect.asVoid(Deferred.done(entry.result, exit))
    })

  /**
   * Ends the waits for items that are late. One fiber does it for all items: nearly every item is durable in time, and a timer
   * for each would cost more than its write.
   */
  const accepted = yield* Latch.make()
  const endLateWaits = Effect.fnUntraced(function* (lateAfterMs: number) {
    yield* accepted.await
    // Before the look: an item that comes after it opens the latch again.
    yield* accepted.close
    for (let first = inTime.oldest; first !== undefined; first = inTime.oldest) {
      yield* Effect.sleep(Math.max(0, first.since + lateAfterMs - now()))
      // The result may have arrived while this process was too busy to see it.
      yield* afterIo
      for (
        let late = inTime.oldest;
        late !== undefined && late.since + lateAfterMs <= now();
        late = inTime.oldest
      ) {
        inTime.remove(late.inTime)
        yield* Deferred.fail(late.result, new Late({ isBeingWritten: late.isBeingWritten }))
      }
    }
  })
  if (options.lateAfterMs !== undefined)
    yield* Effect.forkScoped(Effect.forever(endLateWaits(options.lateAfterMs)))

  const isAboutRows = (cause: Cause.Cause<E>): boolean =>
    Option.match(Cause.findErrorOption(cause), {
      // A row that cannot be encoded is a bad row too.
      onNone: () => Cause.hasDies(cause),
      onSome: options.poisoned
    })

  const write = (batch: ReadonlyArray<Item>) =>
    Effect.exit(Effect.suspend(() => options.write(batch.map(({ item }) => item))))
  const isStoreFailure = (exit: Exit.Exit<void, E>): boolean =>
    Exit.isFailure(exit) && !isAboutRows(exit.cause)

  /** Ends a write, and returns the items that must be written again. */
  const conclude = (
    batch: ReadonlyArray<Item>,
    exit: Exit.Exit<void, E>
  ): Effect.Effect<ReadonlyArray<Item>> =>
    isStoreFailure(exit) && options.onStoreFailure === "keep"
      ? Effect.succeed(batch)
      : Effect.as(
          Effect.forEach(batch, (entry) => settle(entry, exit), { discard: true }),
          []
        )

  /** Writes a batch, and each item of it alone when one of them is bad. Returns the items that must be written again. */
  const attempt = Effect.fnUntraced(function* (batch: ReadonlyArray<Item>) {
    const exit = yield* write(batch)
    if (batch.length < 2 || Exit.isSuccess(exit) || isStoreFailure(exit)) return yield* conclude(batch, exit)
    for (const [index, entry] of batch.entries()) {
      const single = yield* write([entry])
      // The rest is not tried one by one.
      if (isStoreFailure(single)) return yield* conclude(batch.slice(index), single)
      yield* conclude([entry], single)
    }
    return []
  })

  const writeNext = Effect.gen(function* () {
    // A writer that waits is woken at the end of the turn.
    const taken = yield* Queue.takeBetween(queue, 1, options.maxBatch)
    // The submitters of the others have left.
    let left: ReadonlyArray<Item> = taken.filter((entry) => pending.has(entry.pending))
    for (const entry of left) entry.isBeingWritten = true
    for (let failures = 1; left.length > 0; failures += 1) {
      left = (yield* attempt(left)).filter((entry) => pending.has(entry.pending))
      if (left.length > 0) yield* Effect.sleep(pauseMs(failures))
    }
  })
  const writers = yield* Effect.forEach(Array.from({ length: options.writers ?? 1 }), () =>
    Effect.forkScoped(Effect.forever(writeNext))
  )

  const accept = Effect.fnUntraced(function* (item: A) {
    const result = yield* Deferred.make<void, E | QueueClosed | Late>()
    if (pending.size >= options.capacity) return yield* new QueueFull({ capacity: options.capacity })
    const entry: Item = new Entry(item, now(), result)
    // Before the offer: a fiber may be suspended between any two effects, and a writer must find what it takes.
    const isFirst = inTime.size === 0
    pending.add(entry.pending)
    inTime.add(entry.inTime)
    if (yield* Queue.offer(queue, entry)) {
      if (isFirst) yield* accepted.open
      return entry
    }
    pending.remove(entry.pending)
    inTime.remove(entry.inTime)
    return yield* new QueueClosed()
  }, Effect.uninterruptible)

  return {
    offer: (item) => Effect.map(accept(item), ({ result }) => Deferred.await(result)),
    submit: (item) =>
      Effect.uninterruptibleMask((restore) =>
        Effect.flatMap(accept(item), (entry) =>
          Effect.onError(restore(Deferred.await(entry.result)), () =>
            Effect.sync(() => {
              if (!entry.isBeingWritten) pending.remove(entry.pending)
              inTime.remove(entry.inTime)
            })
          )
        )
      ),
    backlog: () => pending.size,
    lagMs: () => {
      const { oldest } = pending
      return oldest === undefined ? 0 : now() - oldest.since
    },
    close: (ms) =>
      Effect.gen(function* () {
        yield* Queue.end(queue)
        yield* Effect.timeoutOption(Fiber.awaitAll(writers), ms)
        const lost = pending.all
        yield* Effect.forEach(lost, (entry) => settle(entry, Exit.fail(new QueueClosed())), { discard: true })
        return lost.length
      })
  }
})
