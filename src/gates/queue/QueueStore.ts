/**
 * The places at the backend and the requests that wait for one, shared by all replicas. Each verb is one atomic step.
 *
 * **Order.** Start-time fair queueing (Goyal, Vin, Cheng 1996), twice: between tenants, and within a tenant between its keys;
 * first come, first served within a key. A request costs tokens. The next request is one of the tenant with the smallest start
 * tag; a tenant's tag grows by charge / weight with each request that goes, and is corrected when the request ends by what it
 * used. The charge is what the last requests used, and never more than what is expected of the request (docs/decisions.md). A
 * tenant that comes back after a pause starts at the virtual time of the queue: a pause neither saves up a share nor costs one.
 * There is no clock in this order.
 *
 * **Models.** A model that is loaded has a turn: its requests go first, in the order above, until its next one is a load ahead of
 * the first request that waits for another model, or for `turnMaxMs`; when both are of one key, for a load time. The turn begins
 * when the model is loaded, or when somebody first waits for another. After it the model gets no more requests, and leaves when
 * those it has are done. Those who waited for the other model are charged for the load, as many tokens as the server would have
 * generated in that time, whatever their weights are: so shares of the service stay as the weights are. A model without requests
 * leaves when nobody came back for a moment. A request waits for its fair share, at most a turn and the load before that, and a
 * load. With one model there are no turns.
 *
 * **Guarantees** (both twins; `test/contract/QueueStore.ts` holds them to it)
 * - At most `places` requests have a place, but for those of a replica that stopped renewing: these count until its lease
 *   ends, and are given to others then.
 * - Nobody waits while a place is free, except for a model that another one must leave for, and just after the store lost its
 *   state (see `restore`).
 * - Every verb is idempotent by request id. A request that left or ended is forgotten at once.
 * - Time is the store's own, never the host's, and decides leases only.
 */
import { Context, Data, type Effect, type Scope } from "effect"
import type { Priority } from "../../domain/attributes.ts"

/** The store did not answer in time, or gave an invalid answer. No request may go on it. */
export class QueueStoreDown extends Data.TaggedError("QueueStoreDown")<{ readonly cause: unknown }> {}

/** One request that wants a place. */
export interface Ticket {
  /** the request id; unique over all replicas */
  readonly id: string
  readonly tenant: string
  readonly key: string
  /** the model it loads; a window of its own follows after a blank */
  readonly model: string
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
  /** models that the server has loaded at the same time (`BACKEND_MAX_LOADED_MODELS`); undefined: learned */
  readonly maxLoadedModels?: number | undefined
  /** how long a model goes on while others wait (`MODEL_TURN_MAX_MS`). 30,000 */
  readonly turnMaxMs?: number
}

/** The models that the server says it has loaded. */
export interface Seen {
  readonly names: ReadonlyArray<string>
  /** how long ago it was asked, milliseconds */
  readonly agoMs: number
}

/** The request has a place: the backend may be called. `loaded`: whether its model is, as far as is known */
export class Granted extends Data.TaggedClass("Granted")<{ readonly loaded: boolean }> {}
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

/**
 * A waiting request got its place because of another one. With `retryAfterS`, as in `Full`, it lost its place in the queue: too
 * many wait, and its tenant or key has the most of them.
 */
export interface Message {
  readonly id: string
  /** as in `Granted` */
  readonly loaded?: boolean
  readonly retryAfterS?: number
}

export interface Beat {
  /** what became of waiting requests of the replica; repeated until the replica no longer reports them as waiting */
  readonly messages: ReadonlyArray<Message>
  /** which of its requests the store has lost; the replica gives them back with `restore` */
  readonly unknown: ReadonlyArray<string>
  /** the models that are loaded or waited for */
  readonly models: ReadonlyArray<ModelUse>
  /** until the lease of a replica ends, or the store that lost its state gives places again, milliseconds */
  readonly changesInMs: number
}

/** A model at the server, over all replicas. */
export interface ModelUse {
  readonly name: string
  readonly resident: boolean
  /** requests that have a place */
  readonly running: number
  /** requests that wait */
  readonly waiting: number
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
     *
     * `loadMs`: how long it waited for its model to be loaded, as the server says. Returns how long the server loaded the model,
     * milliseconds: 0 when it was loaded, or loaded for a request that ended before.
     */
    end(id: string, used: number, bounds: Bounds, loadMs?: number): Effect.Effect<number, QueueStoreDown>

    /**
     * Reports that this replica is alive, with its requests: those with a place, and those that wait. The store
     * forgets requests of the replica that are not reported, if they came before its last beat. `seen`: what the server said
     * since the last beat.
     */
    beat(
      running: ReadonlyArray<string>,
      waiting: ReadonlyArray<string>,
      bounds: Bounds,
      seen?: Seen
    ): Effect.Effect<Beat, QueueStoreDown>

    /**
     * Gives lost requests back to the store. A store without state gives no places for `graceMs`, so that every replica can first
     * report the requests that have one; for `allReportedMs` when those that were known have reported theirs.
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
/**
 * How long no request goes after a loss when all replicas that the store knew have named theirs: longer than a beat, so that one
 * that had just begun has named its own too.
 */
export const allReportedMs = 1300
export const defaultBatchEveryMs = 600_000
/** `Retry-After` follows from about so many of the last requests. */
export const turnsRemembered = 16
/** How long a request is taken to have its place, before the first one has ended. */
export const assumedTurnMs = 2000
/** Longest `Retry-After`, in seconds. */
export const maxRetryAfterS = 600
export const defaultTurnMaxMs = 30_000
/** How long a model is taken to load, before the first one was loaded. */
export const assumedLoadMs = 5000
/** A model was loaded when its request waited so long for that; the server takes some milliseconds anyway. */
export const noticeableLoadMs = 250
/** More models than a server has loaded; the figures of further ones are forgotten. */
export const maxModels = 64
/**
 * Keys of a tenant, or users of them, whose use is remembered while none of their requests waits. Those that used least are
 * forgotten.
 */
export const maxIdleKeys = 1000
/** Pairs of models that are known to fit together. When there are more, all are learned anew. */
export const maxPairs = 2 * maxModels
/** Models of the server's own list that are read: a server that has more loaded at a time needs no turns. */
export const maxListed = 16
/** How long a model stays without requests while another waits: somebody who asks one thing after the other comes back. */
export const lingerMsOf = (loadMs: number): number => (loadMs < 2000 ? 0 : Math.min(1000, loadMs / 8))

/** The name without its window: a model is loaded with one window at a time. */
export const baseOf = (name: string): string => name.split(" ", 1)[0] ?? name
