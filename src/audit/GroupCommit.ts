/**
 * Group commit, as databases do it for their log. Items that arrive in one turn of the event loop are written together at
 * its end. While all writers are busy, new items wait for the next write. A busy store thus gets larger batches, not more
 * batches.
 *
 * When a batch fails because of a row, each item is written alone, so a bad row does not affect the others. When a batch
 * fails because of the store, its submitters fail (`fail`), or its writer tries it again until it is written (`keep`).
 */
import { Cause, Data, Effect, Exit, Option, type Scope } from "effect"
import { Link, LinkedList } from "../infra/LinkedList.ts"
import { afterIo, makeMonotonicMs } from "../infra/time.ts"

/** The queue is full: nothing was accepted. */
export class QueueFull extends Data.TaggedError("QueueFull")<{ readonly capacity: number }> {}

/** The queue was closed before the item could be written. */
export class QueueClosed extends Data.TaggedError("QueueClosed")<{}> {}

/** The item did not become durable within the time limit of its submitter. */
export class Late extends Data.TaggedError("Late")<{}> {}

/** Waits until an accepted item is durable, or fails when it is late. One fiber may wait for an item. */
export type Durable<E> = Effect.Effect<void, E | QueueClosed | Late>

export interface GroupCommit<A, E> {
  /** Accepts an item. It stays queued until it is written, whoever waits for it. */
  offer(item: A): Exit.Exit<Durable<E>, QueueFull | QueueClosed>
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
  /**
   * Called at the moment at which an item is late, whoever waits for it: a change of the item is written, unless the item is being
   * written. Then the change may come too late for its batch.
   */
  readonly late?: (item: A, isBeingWritten: boolean) => Effect.Effect<void>
  /** called once for each item when it is durable or given up */
  readonly settled?: (item: A) => void
}

type Ended<E> = Exit.Exit<void, E | QueueClosed | Late>

class Entry<A, E> {
  readonly item: A
  readonly since: number
  /** whether it leaves the queue when nobody waits for it any more */
  readonly isTakenBack: boolean
  /** its places in the lists below */
  readonly pending = new Link(this)
  readonly inTime = new Link(this)
  isBeingWritten = false
  #exit: Ended<E> | undefined
  #resume: ((exit: Ended<E>) => void) | undefined

  constructor(item: A, since: number, isTakenBack: boolean) {
    this.item = item
    this.since = since
    this.isTakenBack = isTakenBack
  }

  /** Ends the wait. Only the first end counts. */
  end(exit: Ended<E>): void {
    if (this.#exit !== undefined) return
    this.#exit = exit
    this.#resume?.(exit)
  }

  whenEnded(resume: (exit: Ended<E>) => void): void {
    if (this.#exit === undefined) this.#resume = resume
    else resume(this.#exit)
  }
}

/** Fibers that wait until there is work. */
class Idle {
  #resumes: Array<() => void> = []
  readonly wait: Effect.Effect<void>

  /** Work that comes later is told by `wake`. */
  constructor(hasWork: () => boolean) {
    this.wait = Effect.callback((resume) => {
      if (hasWork()) return resume(Effect.void)
      const go = () => resume(afterIo)
      this.#resumes.push(go)
      return Effect.sync(() => void (this.#resumes = this.#resumes.filter((other) => other !== go)))
    })
  }

  /** Wakes one of them. It goes on at the end of this turn of the event loop. */
  wake(): void {
    this.#resumes.pop()?.()
  }
}

/** The first retry comes soon, so that a short failover is hardly noticed; later ones come every two seconds. */
const pauseMs = (failures: number): number => Math.min(2000, 100 * 2 ** (failures - 1))

/** The writers run until the scope closes. Close the queue before, so that what it has is written. */
export const makeGroupCommit = Effect.fnUntraced(function* <A, E>(
  options: GroupCommitOptions<A, E>
): Effect.fn.Return<GroupCommit<A, E>, never, Scope.Scope> {
  type Item = Entry<A, E>
  const { capacity, lateAfterMs, maxBatch } = options
  const now = yield* makeMonotonicMs
  /** accepted, and taken by no writer; some of them have left */
  const queue: Array<Item> = []
  /** accepted, and neither durable nor given up, the oldest first */
  const pending = new LinkedList<Item>()
  /** those of them that are not late yet */
  const inTime = new LinkedList<Item>()
  const writers = new Idle(() => queue.length > 0)
  const watcher = new Idle(() => inTime.size > 0)
  let closed = false
  let whenEmpty: (() => void) | undefined

  /** Returns whether the item was pending. */
  const remove = (entry: Item): boolean => {
    const wasPending = pending.remove(entry.pending)
    if (pending.size === 0) whenEmpty?.()
    return wasPending
  }

  /** The item is durable or given up. */
  const settle = (entry: Item, exit: Exit.Exit<void, E | QueueClosed>): void => {
    if (!remove(entry)) return
    inTime.remove(entry.inTime)
    options.settled?.(entry.item)
    entry.end(exit)
  }

  /** Nobody waits for the item any more. */
  const leave = (entry: Item): void => {
    inTime.remove(entry.inTime)
    if (entry.isTakenBack && !entry.isBeingWritten) remove(entry)
  }

  /**
   * Ends the waits for items that are late. One fiber does it for all items: nearly every item is durable in time, and a timer
   * for each would cost more than its write.
   */
  const endLateWaits = Effect.fnUntraced(function* (afterMs: number) {
    yield* watcher.wait
    for (let first = inTime.oldest; first !== undefined; first = inTime.oldest) {
      yield* Effect.sleep(Math.max(0, first.since + afterMs - now()))
      // The result may have arrived while this process was too busy to see it.
      yield* afterIo
      for (
        let late = inTime.oldest;
        late !== undefined && late.since + afterMs <= now();
        late = inTime.oldest
      ) {
        leave(late)
        const rest = options.late?.(late.item, late.isBeingWritten)
        late.end(Exit.fail(new Late()))
        if (rest !== undefined) yield* rest
      }
    }
  })
  if (lateAfterMs !== undefined) yield* Effect.forkScoped(Effect.forever(endLateWaits(lateAfterMs)))

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
  const conclude = (batch: ReadonlyArray<Item>, exit: Exit.Exit<void, E>): ReadonlyArray<Item> => {
    if (isStoreFailure(exit) && options.onStoreFailure === "keep") return batch
    for (const entry of batch) settle(entry, exit)
    return []
  }

  /** Writes a batch, and each item of it alone when one of them is bad. Returns the items that must be written again. */
  const attempt = Effect.fnUntraced(function* (batch: ReadonlyArray<Item>) {
    const exit = yield* write(batch)
    if (batch.length < 2 || Exit.isSuccess(exit) || isStoreFailure(exit)) return conclude(batch, exit)
    for (const [index, entry] of batch.entries()) {
      const single = yield* write([entry])
      // The rest is not tried one by one.
      if (isStoreFailure(single)) return conclude(batch.slice(index), single)
      conclude([entry], single)
    }
    return []
  })

  const take = (): ReadonlyArray<Item> => {
    const taken = queue.splice(0, maxBatch).filter((entry) => pending.has(entry.pending))
    if (queue.length > 0) writers.wake()
    for (const entry of taken) entry.isBeingWritten = true
    return taken
  }
  const writeNext = Effect.gen(function* () {
    yield* writers.wait
    let left = take()
    for (let failures = 1; left.length > 0; failures += 1) {
      left = (yield* attempt(left)).filter((entry) => pending.has(entry.pending))
      if (left.length > 0) yield* Effect.sleep(pauseMs(failures))
    }
  })
  for (let n = 0; n < (options.writers ?? 1); n += 1) yield* Effect.forkScoped(Effect.forever(writeNext))

  const accept = (item: A, isTakenBack: boolean): Item | QueueFull | QueueClosed => {
    if (closed) return new QueueClosed()
    if (pending.size >= capacity) return new QueueFull({ capacity })
    const entry: Item = new Entry(item, now(), isTakenBack)
    if (queue.length === 0) writers.wake()
    if (inTime.size === 0) watcher.wake()
    queue.push(entry)
    pending.add(entry.pending)
    inTime.add(entry.inTime)
    return entry
  }

  return {
    offer: (item) => {
      const entry = accept(item, false)
      return entry instanceof Entry
        ? Exit.succeed(Effect.callback((resume) => entry.whenEnded(resume)))
        : Exit.fail(entry)
    },
    submit: (item) =>
      Effect.callback((resume) => {
        const entry = accept(item, true)
        if (!(entry instanceof Entry)) return resume(Effect.fail(entry))
        entry.whenEnded(resume)
        return Effect.sync(() => leave(entry))
      }),
    backlog: () => pending.size,
    lagMs: () => {
      const { oldest } = pending
      return oldest === undefined ? 0 : now() - oldest.since
    },
    close: Effect.fnUntraced(function* (ms) {
      closed = true
      const empty = Effect.callback<void>((resume) => {
        whenEmpty = () => resume(Effect.void)
        if (pending.size === 0) whenEmpty()
      })
      yield* Effect.timeoutOption(empty, ms)
      const lost = pending.all
      for (const entry of lost) settle(entry, Exit.fail(new QueueClosed()))
      return lost.length
    })
  }
})
