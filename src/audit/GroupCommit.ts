/**
 * Group commit, as databases do it for their log. Items that arrive in one turn of the event loop are written together at
 * its end. While all writers are busy, new items wait for the next write. A busy store thus gets larger batches, not more
 * batches.
 *
 * When a batch fails because of a row, each item is written alone, so a bad row does not affect the others. When a batch
 * fails because of the store, its submitters fail (`fail`), or the batch stays at the head of the queue and is retried
 * until it is written (`keep`).
 */
import { Cause, Data, Deferred, Effect, Exit, Option } from "effect"
import { callbackWithTimeout, makeMonotonicMs, makeTimer } from "../infra/time.ts"

/** The queue is full: nothing was accepted. */
export class QueueFull extends Data.TaggedError("QueueFull")<{ readonly capacity: number }> {}

/** The queue was closed before the item could be written. */
export class QueueClosed extends Data.TaggedError("QueueClosed")<{}> {}

/** The item did not become durable within the time limit of its submitter. */
export class Late extends Data.TaggedError("Late")<{
  /** The item is in the batch that is being written: a change of the item may come too late for that batch. */
  readonly isBeingWritten: boolean
}> {}

/** Waits until an accepted item is durable, at most `ms` (default: without limit). Only one fiber at a time may wait. */
export type Durable<E> = (ms?: number) => Effect.Effect<void, E | QueueClosed | Late>

/** An accepted item whose submitter may still give it up. */
export interface Submitted<E> {
  /**
   * Succeeds when the item is durable. When the caller is interrupted, or `ms` have passed, an item that is not being
   * written yet is removed from the queue.
   */
  wait(ms?: number): Effect.Effect<void, E | QueueClosed | Late>
  /**
   * Removes the item from the queue. If it is being written, waits until it is written or has failed, at most `ms`.
   */
  withdraw(ms: number): Effect.Effect<void>
}

export interface GroupCommit<A, E> {
  /** Accepts an item at once. An accepted item stays queued until it is written. */
  offer(item: A): Effect.Effect<Durable<E>, QueueFull | QueueClosed>
  /** Does the same at once, without an effect. */
  offerNow(item: A): Durable<E> | QueueFull | QueueClosed
  /**
   * Succeeds when the item is durable. When the submitter is interrupted, or `ms` have passed, an item that is not being
   * written yet is removed from the queue.
   */
  submit(item: A, ms?: number): Effect.Effect<void, E | QueueFull | QueueClosed | Late>
  /** Accepts an item now, before anyone waits for it. `undefined`: the queue is full or closed, and nothing was accepted. */
  begin(item: A): Submitted<E> | undefined
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
  /** how many batches are written at a time; default 1. With 2, an item does not wait for the whole write before it. */
  readonly writers?: number
  /** called once for each item when it is durable or given up */
  readonly settled?: (item: A) => void
}

interface Waiting<A, E> {
  readonly item: A
  readonly since: number
  /** the result, once there is one */
  exit: Exit.Exit<void, E | QueueClosed> | undefined
  /** resumes the fiber that waits for the result */
  resume: ((exit: Exit.Exit<void, E | QueueClosed>) => void) | undefined
}

const unlimited = Number.POSITIVE_INFINITY

const endOfTurn = Effect.callback<void>((resume) => void setImmediate(() => resume(Effect.void)))

/** The first retry comes soon, so that a short failover is hardly noticed; later ones come every two seconds. */
const pauseMs = (failures: number): number => Math.min(2000, 100 * 2 ** (failures - 1))

export const makeGroupCommit = Effect.fnUntraced(function* <A, E>(
  options: GroupCommitOptions<A, E>
): Effect.fn.Return<GroupCommit<A, E>> {
  const [now, timer] = [yield* makeMonotonicMs, yield* makeTimer]
  // Detached: the writer must outlive the request that started it, and must not inherit its log annotations.
  const run = Effect.runForkWith(yield* Effect.context<never>())
  type Item = Waiting<A, E>
  const queue: Array<Item> = []
  const inFlight: Array<ReadonlyArray<Item>> = []
  const writers = options.writers ?? 1
  let writing = 0
  /** items that were accepted and are neither durable nor given up */
  let backlog = 0
  let idle: Deferred.Deferred<void> | undefined
  let state: "open" | "draining" | "closed" = "open"

  const settle = (waiting: Item, exit: Exit.Exit<void, E | QueueClosed>): void => {
    // The item was given up while it was being written.
    if (waiting.exit !== undefined) return
    options.settled?.(waiting.item)
    backlog -= 1
    waiting.exit = exit
    waiting.resume?.(exit)
  }

  /** Removes an item that no fiber waits for, unless it is being written already. */
  const remove = (waiting: Item): void => {
    const place = queue.indexOf(waiting)
    if (place === -1) return
    queue.splice(place, 1)
    backlog -= 1
  }

  /** `givesUp`: an item that is not durable in time, or whose fiber is interrupted, is removed if it is still queued. */
  const durable = (
    waiting: Item,
    ms: number,
    givesUp: boolean
  ): Effect.Effect<void, E | QueueClosed | Late> =>
    waiting.exit ??
    callbackWithTimeout<void, E | QueueClosed | Late>(
      timer,
      ms,
      (resume) => {
        // The effect may have been made before there was a result.
        if (waiting.exit === undefined) waiting.resume = resume
        else resume(waiting.exit)
        return () => {
          waiting.resume = undefined
          if (givesUp) remove(waiting)
        }
      },
      () => {
        const isBeingWritten = inFlight.some((batch) => batch.includes(waiting))
        if (givesUp) remove(waiting)
        return Effect.fail(new Late({ isBeingWritten }))
      }
    )

  const isAboutRows = (cause: Cause.Cause<E>): boolean =>
    Option.match(Cause.findErrorOption(cause), {
      // A row that cannot be encoded is a bad row too.
      onNone: () => Cause.hasDies(cause),
      onSome: options.poisoned
    })

  /** Writes a batch and returns the items that must be retried. */
  const write = Effect.fnUntraced(function* (
    batch: ReadonlyArray<Item>
  ): Effect.fn.Return<ReadonlyArray<Item>> {
    const exit = yield* Effect.exit(Effect.suspend(() => options.write(batch.map(({ item }) => item))))
    if (Exit.isFailure(exit)) {
      const rows = isAboutRows(exit.cause)
      if (rows && batch.length > 1) return yield* writeSingly(batch)
      if (!rows && options.onStoreFailure === "keep") return batch
    }
    for (const waiting of batch) settle(waiting, exit)
    return []
  })

  const writeSingly = Effect.fnUntraced(function* (batch: ReadonlyArray<Item>) {
    for (const [index, waiting] of batch.entries()) {
      // The store itself has failed: do not try the rest one by one.
      if ((yield* write([waiting])).length > 0) return batch.slice(index)
    }
    return []
  })

  const hasWork = () => queue.length > 0 && state !== "closed"

  const drain = Effect.gen(function* () {
    let failures = 0
    while (hasWork()) {
      yield* endOfTurn
      // Another writer may have written the items meanwhile.
      if (!hasWork()) break
      const batch = queue.splice(0, options.maxBatch)
      inFlight.push(batch)
      const left = yield* write(batch)
      inFlight.splice(inFlight.indexOf(batch), 1)
      if (left.length === 0) {
        failures = 0
        continue
      }
      queue.unshift(...left)
      failures += 1
      yield* Effect.sleep(pauseMs(failures))
    }
    writing -= 1
    if (writing > 0 || idle === undefined) return
    Deferred.doneUnsafe(idle, Exit.void)
    idle = undefined
  })

  const acceptNow = (item: A): Item | QueueFull | QueueClosed => {
    if (state !== "open") return new QueueClosed()
    if (backlog >= options.capacity) return new QueueFull({ capacity: options.capacity })
    const waiting: Item = { item, since: now(), exit: undefined, resume: undefined }
    queue.push(waiting)
    backlog += 1
    if (writing < writers) {
      idle ??= Deferred.makeUnsafe()
      writing += 1
      run(drain)
    }
    return waiting
  }

  const offerNow = (item: A): Durable<E> | QueueFull | QueueClosed => {
    const accepted = acceptNow(item)
    return "item" in accepted ? (ms = unlimited) => durable(accepted, ms, false) : accepted
  }

  const submit = (item: A, ms = unlimited): Effect.Effect<void, E | QueueFull | QueueClosed | Late> => {
    const accepted = acceptNow(item)
    return "item" in accepted ? durable(accepted, ms, true) : accepted
  }

  return {
    offer: (item) =>
      Effect.suspend((): Effect.Effect<Durable<E>, QueueFull | QueueClosed> => {
        const accepted = offerNow(item)
        return typeof accepted === "function" ? Effect.succeed(accepted) : accepted
      }),
    offerNow,
    submit: (item, ms) => Effect.suspend(() => submit(item, ms)),
    begin: (item) => {
      const accepted = acceptNow(item)
      if (!("item" in accepted)) return undefined
      return {
        wait: (ms = unlimited) => durable(accepted, ms, true),
        withdraw: (ms) =>
          Effect.suspend(() => {
            // Its result does not matter to a submitter that gives it up; the writer has logged a failure.
            if (!queue.includes(accepted)) return Effect.ignore(durable(accepted, ms, false))
            remove(accepted)
            return Effect.void
          })
      }
    },
    backlog: () => backlog,
    lagMs: () => {
      let oldest = queue[0]?.since ?? Number.POSITIVE_INFINITY
      for (const batch of inFlight) {
        oldest = Math.min(oldest, batch.find(({ exit }) => exit === undefined)?.since ?? oldest)
      }
      return oldest === Number.POSITIVE_INFINITY ? 0 : now() - oldest
    },
    close: (ms) =>
      Effect.suspend(() => {
        state = "draining"
        return idle === undefined ? Effect.void : Deferred.await(idle)
      }).pipe(
        Effect.timeoutOption(ms),
        Effect.map(() => {
          state = "closed"
          const lost = [...inFlight.flat(), ...queue.splice(0)]
          for (const waiting of lost) settle(waiting, Exit.fail(new QueueClosed()))
          return lost.length
        })
      )
  }
})
