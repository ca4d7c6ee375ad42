/**
 * Group commit: what arrives in one turn of the event loop is written at its end, what arrives while as much as may be is
 * being written rides together in the next write (Postgres and its kin do the same with their log). Few writes at a time, so
 * a busy store gets larger batches instead of more of them.
 *
 * A batch that fails because of its rows is written once more item by item, so that a row nobody can write costs
 * its neighbours nothing. A batch that fails because of the store either fails its submitters (`fail`), or stays at
 * the head of the queue and is tried again until it is written (`keep`).
 */
import { Cause, Data, Deferred, Effect, Exit, Option } from "effect"
import { callbackWithTimeout, makeMonotonicMs, makeTimer } from "../infra/time.ts"

/** The queue is full: nothing was accepted. */
export class QueueFull extends Data.TaggedError("QueueFull")<{ readonly capacity: number }> {}

/** The queue was closed before the item could be written. */
export class QueueClosed extends Data.TaggedError("QueueClosed")<{}> {}

/** It did not become durable in the time its submitter would wait. */
export class Late extends Data.TaggedError("Late")<{}> {}

/** Waits until an accepted item is durable, at most `ms` (default: for ever). One fiber at a time may wait. */
export type Durable<E> = (ms?: number) => Effect.Effect<void, E | QueueClosed | Late>

export interface GroupCommit<A, E> {
  /** Accepts an item at once. What was accepted stays accepted, however long it takes. */
  offer(item: A): Effect.Effect<Durable<E>, QueueFull | QueueClosed>
  /**
   * Succeeds when the item is durable. A submitter that is interrupted, or does not wait longer than `ms`, takes back an
   * item that is not being written yet.
   */
  submit(item: A, ms?: number): Effect.Effect<void, E | QueueFull | QueueClosed | Late>
  /** items not yet durable, those being written included */
  readonly backlog: () => number
  /** milliseconds the oldest of them has waited; 0 when there is none */
  readonly lagMs: () => number
  /** Accepts nothing more and waits at most `ms` for what was accepted; answers how many items were lost. */
  close(ms: number): Effect.Effect<number>
}

export interface GroupCommitOptions<A, E> {
  readonly write: (batch: ReadonlyArray<A>) => Effect.Effect<void, E>
  /** whether an error is about the rows themselves: then writing them singly helps, and trying again does not */
  readonly poisoned: (error: E) => boolean
  readonly onStoreFailure: "fail" | "keep"
  readonly maxBatch: number
  readonly capacity: number
  /** How many batches may be under way at a time; default 1. With a second nobody waits for the whole of another's write. */
  readonly writers?: number
  /** called once per item when it is durable or given up */
  readonly settled?: (item: A) => void
}

interface Waiting<A, E> {
  readonly item: A
  readonly since: number
  /** how it went, once that is known */
  exit: Exit.Exit<void, E | QueueClosed> | undefined
  /** whoever waits for it */
  tell: ((exit: Exit.Exit<void, E | QueueClosed>) => void) | undefined
}

const endOfTurn = Effect.callback<void>((resume) => void setImmediate(() => resume(Effect.void)))

/** Soon at first, so that a short failover is hardly seen; then every two seconds. */
const pauseMs = (failures: number): number => Math.min(2000, 100 * 2 ** (failures - 1))

export const makeGroupCommit = Effect.fnUntraced(function* <A, E>(
  options: GroupCommitOptions<A, E>
): Effect.fn.Return<GroupCommit<A, E>> {
  const [now, alarm] = [yield* makeMonotonicMs, yield* makeTimer]
  // The writer is nobody's child: it must not end with a request, nor log in its name.
  const run = Effect.runForkWith(yield* Effect.context<never>())
  type Item = Waiting<A, E>
  const queue: Array<Item> = []
  const flying: Array<ReadonlyArray<Item>> = []
  const writers = options.writers ?? 1
  let writing = 0
  /** accepted, and neither durable nor given up */
  let backlog = 0
  let idle: Deferred.Deferred<void> | undefined
  let state: "open" | "draining" | "closed" = "open"

  const settle = (waiting: Item, exit: Exit.Exit<void, E | QueueClosed>): void => {
    // It was given up while it was being written.
    if (waiting.exit !== undefined) return
    options.settled?.(waiting.item)
    backlog -= 1
    waiting.exit = exit
    waiting.tell?.(exit)
  }

  const durable = (
    waiting: Item,
    ms = Number.POSITIVE_INFINITY
  ): Effect.Effect<void, E | QueueClosed | Late> =>
    Effect.suspend(
      () =>
        waiting.exit ??
        callbackWithTimeout<void, E | QueueClosed | Late>(
          alarm,
          ms,
          (resume) => {
            waiting.tell = resume
            return () => void (waiting.tell = undefined)
          },
          () => Effect.fail(new Late())
        )
    )

  /** Nobody waits for it any more: it need not be written, unless it is being written already. */
  const takeBack = (waiting: Item) =>
    Effect.sync(() => {
      const place = queue.indexOf(waiting)
      if (place === -1) return
      queue.splice(place, 1)
      backlog -= 1
    })

  const aboutRows = (cause: Cause.Cause<E>): boolean =>
    Option.match(Cause.findErrorOption(cause), {
      // A row that breaks its own encoding is a poisoned row too.
      onNone: () => Cause.hasDies(cause),
      onSome: options.poisoned
    })

  /** Writes a batch; answers what has to be tried again. */
  const write = Effect.fnUntraced(function* (
    batch: ReadonlyArray<Item>
  ): Effect.fn.Return<ReadonlyArray<Item>> {
    const exit = yield* Effect.exit(Effect.suspend(() => options.write(batch.map(({ item }) => item))))
    if (Exit.isFailure(exit)) {
      const rows = aboutRows(exit.cause)
      if (rows && batch.length > 1) return yield* writeSingly(batch)
      if (!rows && options.onStoreFailure === "keep") return batch
    }
    for (const waiting of batch) settle(waiting, exit)
    return []
  })

  const writeSingly = Effect.fnUntraced(function* (batch: ReadonlyArray<Item>) {
    for (const [index, waiting] of batch.entries()) {
      // The store itself has failed now: the rest need not find that out one by one.
      if ((yield* write([waiting])).length > 0) return batch.slice(index)
    }
    return []
  })

  const wanted = () => queue.length > 0 && state !== "closed"

  const drain = Effect.gen(function* () {
    let failures = 0
    while (wanted()) {
      yield* endOfTurn
      // Another writer may have taken it along.
      if (!wanted()) break
      const batch = queue.splice(0, options.maxBatch)
      flying.push(batch)
      const left = yield* write(batch)
      flying.splice(flying.indexOf(batch), 1)
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

  const accept = (item: A): Effect.Effect<Item, QueueFull | QueueClosed> =>
    Effect.suspend((): Effect.Effect<Item, QueueFull | QueueClosed> => {
      if (state !== "open") return new QueueClosed()
      if (backlog >= options.capacity) return new QueueFull({ capacity: options.capacity })
      const waiting: Item = { item, since: now(), exit: undefined, tell: undefined }
      queue.push(waiting)
      backlog += 1
      if (writing < writers) {
        idle ??= Deferred.makeUnsafe()
        writing += 1
        run(drain)
      }
      return Effect.succeed(waiting)
    })

  return {
    offer: (item) => Effect.map(accept(item), (waiting) => (ms) => durable(waiting, ms)),
    submit: (item, ms) =>
      Effect.flatMap(accept(item), (waiting) =>
        Effect.onExit(durable(waiting, ms), () =>
          waiting.exit === undefined ? takeBack(waiting) : Effect.void
        )
      ),
    backlog: () => backlog,
    lagMs: () => {
      let oldest = queue[0]?.since ?? Number.POSITIVE_INFINITY
      for (const batch of flying) {
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
          const lost = [...flying.flat(), ...queue.splice(0)]
          for (const waiting of lost) settle(waiting, Exit.fail(new QueueClosed()))
          return lost.length
        })
      )
  }
})
