/**
 * The places at the backend and the requests that wait for one, shared by all replicas. Each verb is one atomic step.
 *
 * **Order.** Start-time fair queueing (Goyal, Vin, Cheng 1996), twice: between tenants, and within a tenant between its
 * keys; first come, first served within a key. A request costs tokens. The next request is one of the tenant with the
 * smallest start tag; a tenant's tag grows by charge / weight with each request that goes, and is corrected when the request
 * ends by what it used. The charge is what the last requests used, at most what is expected of this one: were it as much as a
 * request may use at most, the virtual time would run ahead, and tenants that come later would wait for that. A tenant that comes back after a pause starts at the virtual time of the queue: a pause neither
 * saves up a share nor costs one. There is no clock in this order.
 *
 * **Guarantees** (both twins; `test/contract/QueueStore.ts` holds them to it)
 * - At most `places` requests have a place, but for those of a replica that stopped renewing: these count until its lease
 *   ends, and are given to others then.
 * - Nobody waits while a place is free, except just after the store lost its state (see `restore`).
 * - Every verb is idempotent by request id. A request that left or ended is forgotten at once.
 * - Time is the store's own, never the host's, and decides leases only.
 */
import { Context, Data, type Effect, type Scope } from "effect"
import type { Priority } from "../../domain/settings.ts"

/** The store did not answer in time, or gave an invalid answer. No request may go on it. */
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

/** The limits of a call, from the settings of the calling replica. */
export interface Bounds {
  /** requests at the backend at the same time, over all replicas; at least 1 */
  readonly places: number
  /** requests that may wait at the same time, over all replicas */
  readonly depth: number
}

/** The request has a place: the backend may be called. */
export class Granted extends Data.TaggedClass("Granted")<{}> {}
/** The request waits. `order` is its number among all requests that ever came, for `restore`. */
export class Waiting extends Data.TaggedClass("Waiting")<{ readonly order: number }> {}
/**
 * Too many requests wait. `retryAfterS`: whole seconds, 1 to `maxRetryAfterS`, until all waiting requests have started: their number
 * times the average time that the last requests had their places, divided by the places. A pause without requests does
 * not change it.
 */
export class Full extends Data.TaggedClass("Full")<{ readonly retryAfterS: number }> {}

/** One request of a replica, as the replica knows it. */
export interface Held {
  readonly ticket: Ticket
  /** of `Waiting`; undefined: it has a place */
  readonly order: number | undefined
}

/** A request got its place because of another one, or, with `retryAfterS`, it was displaced. */
export interface Message {
  readonly id: string
  readonly retryAfterS?: number
}

/**
 * Another request took the place in the queue: too many wait, and its tenant or key has the most of them.
 * `retryAfterS` as in `Full`.
 */
export interface Displaced {
  readonly id: string
  readonly retryAfterS: number
}

export interface Beat {
  /**
   * which waiting requests of the replica have a place now; repeated until the replica no longer reports them as
   * waiting
   */
  readonly granted: ReadonlyArray<string>
  /** which waiting requests of the replica were displaced; repeated until the replica no longer reports them */
  readonly displaced: ReadonlyArray<Displaced>
  /** which of its requests the store has lost; the replica gives them back with `restore` */
  readonly unknown: ReadonlyArray<string>
}

export class QueueStore extends Context.Service<
  QueueStore,
  {
    /**
     * Gives a place, puts the request into the queue, or refuses it. A repeated call returns the present state of the
     * request.
     *
     * When as many wait as may, the newest request of the tenant with the most waiting ones is displaced, if that tenant
     * has at least two more than the tenant of the new request; else the same between the keys of its tenant. An
     * interactive request displaces batch requests first. So a tenant finds room in the queue, whatever the others have
     * there.
     */
    enter(ticket: Ticket, bounds: Bounds): Effect.Effect<Granted | Waiting | Full, QueueStoreDown>

    /**
     * The request no longer waits, and did not use a place that it may have got meanwhile. It costs its tenant
     * nothing. Returns the seconds that a new request would wait, as `Full` does.
     */
    leave(id: string, bounds: Bounds): Effect.Effect<number, QueueStoreDown>

    /**
     * The request has ended and used this many tokens. The next request gets its place. A request that used none
     * counts as much as it was charged: otherwise a tenant whose requests all fail would always go first.
     */
    end(id: string, used: number, bounds: Bounds): Effect.Effect<void, QueueStoreDown>

    /**
     * Reports that this replica is alive, with its requests: those with a place, and those that wait. The store
     * forgets requests of the replica that are not reported, if they came before its last beat.
     */
    beat(
      running: ReadonlyArray<string>,
      waiting: ReadonlyArray<string>,
      bounds: Bounds
    ): Effect.Effect<Beat, QueueStoreDown>

    /**
     * Gives lost requests back to the store. A store without state gives no places for `graceMs`, so that every
     * replica can first report the requests that have one.
     */
    restore(held: ReadonlyArray<Held>, bounds: Bounds): Effect.Effect<void, QueueStoreDown>

    /**
     * Runs `listener` for each message about a request of this replica while the scope is open. A message may be lost;
     * `beat` repeats it.
     */
    onMessage(listener: (message: Message) => Effect.Effect<void>): Effect.Effect<void, never, Scope.Scope>
  }
>()("tollgate/gates/queue/QueueStore") {}

export interface QueueStoreOptions {
  /** seconds a replica's requests live without its beat (`CONCURRENCY_LEASE_S`) */
  readonly leaseS: number
  /** how long no request goes after the store lost its state: longer than two beats, milliseconds. 2500 */
  readonly graceMs?: number
  /** a batch request goes at least this often, milliseconds. 600,000 */
  readonly batchEveryMs?: number
}

export const defaultGraceMs = 2500
export const defaultBatchEveryMs = 600_000
/** `Retry-After` follows from about so many of the last requests. */
export const turnsRemembered = 16
/** How long a request is taken to have its place, before the first one has ended. */
export const assumedTurnMs = 2000
/** Longest `Retry-After`, in seconds. */
export const maxRetryAfterS = 600
