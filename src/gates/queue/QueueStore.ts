/**
 * The places at the backend and the requests that wait for one, shared by all replicas. Each verb is one atomic step.
 *
 * **Order.** Start-time fair queueing (Goyal, Vin, Cheng 1996), twice: between tenants, and within a tenant between its
 * keys; first come, first served within a key. A request costs tokens. The next request is one of the tenant with the
 * smallest start tag; a tenant's tag grows by cost / weight with each request that goes, and is corrected when the request
 * ends by what it used. A tenant that comes back after a pause starts at the virtual time of the queue: a pause neither
 * saves up a share nor costs one. There is no clock in this order.
 *
 * **Guarantees** (both twins; `test/contract/QueueStore.ts` holds them to it)
 * - At most `places` requests have a place, but for those of a replica that stopped renewing: these count until its lease
 *   ends, and are given to others then.
 * - Nobody waits while a place is free, except just after the store lost its state (see `restore`).
 * - Every verb is idempotent by request id. A request that left or ended is forgotten at once.
 * - Time is the store's own, never the host's, and decides leases only.
 */
import { Context, Data, type Effect } from "effect"
import type { Priority } from "../../domain/Caller.ts"

/** The store did not answer in time, or answered nonsense: nobody may be let in on it. */
export class QueueStoreDown extends Data.TaggedError("QueueStoreDown")<{ readonly cause: unknown }> {}

/** One request that wants a place. */
export interface Ticket {
  /** the request id; unique over all replicas */
  readonly id: string
  readonly tenant: string
  readonly key: string
  /** of the tenant: twice the weight is twice the share; above 0 */
  readonly weight: number
  readonly priority: Priority
  /** tokens it is expected to use, at least 1 */
  readonly cost: number
}

/** What applies to a call, as the calling replica was configured. */
export interface Bounds {
  /** requests at the backend at the same time, over all replicas; at least 1 */
  readonly places: number
  /** requests that may wait at the same time, over all replicas */
  readonly depth: number
}

/** It has a place: the backend may be called. */
export class Granted extends Data.TaggedClass("Granted")<{}> {}
/** It waits. `order` is its place among all that ever came, for `restore`. */
export class Waiting extends Data.TaggedClass("Waiting")<{ readonly order: number }> {}
/** Too many wait. `retryAfterS`: whole seconds, at least 1, until the line has moved so far at its present rate. */
export class Full extends Data.TaggedClass("Full")<{ readonly retryAfterS: number }> {}

/** What a replica knows of one of its own requests. */
export interface Held {
  readonly ticket: Ticket
  /** of `Waiting`; undefined: it has a place */
  readonly order: number | undefined
}

export interface Beat {
  /** which of the replica's waiting requests have a place by now, told again until the replica no longer says they wait */
  readonly granted: ReadonlyArray<string>
  /** which of its requests the store does not know: it has lost them, and wants them back by `restore` */
  readonly unknown: ReadonlyArray<string>
}

export class QueueStore extends Context.Service<
  QueueStore,
  {
    /** Gives a place, or one in the line, or refuses. Repeated, it answers how the request stands now. */
    enter(ticket: Ticket, bounds: Bounds): Effect.Effect<Granted | Waiting | Full, QueueStoreDown>

    /**
     * The request no longer waits, and had no use of a place it may have got meanwhile: it costs its tenant nothing. Answers
     * the seconds a request that comes now may expect to wait, as `Full` does.
     */
    leave(id: string, bounds: Bounds): Effect.Effect<number, QueueStoreDown>

    /** The request has ended and used so many tokens. Its place goes to the next. */
    end(id: string, used: number, bounds: Bounds): Effect.Effect<void, QueueStoreDown>

    /**
     * This replica is alive, and these are its requests: those that have a place, and those that wait. Requests of the
     * replica that the store has and the replica does not name are forgotten, if they came before its last beat.
     */
    beat(
      running: ReadonlyArray<string>,
      waiting: ReadonlyArray<string>,
      bounds: Bounds
    ): Effect.Effect<Beat, QueueStoreDown>

    /**
     * Gives back what the store has lost. A store that finds itself without state lets nobody in for `graceMs`, so that
     * every replica can name the requests that have a place before places are given to others.
     */
    restore(held: ReadonlyArray<Held>, bounds: Bounds): Effect.Effect<void, QueueStoreDown>

    /**
     * Calls `listener` with the id of each of this replica's requests that gets a place because of somebody else's call. A
     * call may be lost, never made twice for nothing: `beat` tells it again. Answers the way to stop.
     */
    onGranted(listener: (id: string) => void): () => void
  }
>()("tollgate/gates/queue/QueueStore") {}

export interface QueueStoreOptions {
  /** seconds a replica's requests live without its beat (`CONCURRENCY_LEASE_S`) */
  readonly leaseS: number
  /** how long nobody is let in after the store lost its state: longer than two beats, milliseconds. 2500 */
  readonly graceMs?: number
  /** a batch request goes at least so often, milliseconds. 600,000 */
  readonly batchEveryMs?: number
}

export const defaultGraceMs = 2500
export const defaultBatchEveryMs = 600_000
/** Ends are counted with a half-life of about 42 s to tell the rate at which the line moves. */
export const rateWindowMs = 60_000
/** No client is told to stay away for longer than this, in seconds. */
export const mostRetryAfterS = 600
