/**
 * The queue for the backend: a request waits for a place and gives it back. At most `BACKEND_MAX_CONCURRENT` requests
 * have a place, over all replicas; `QueueStore` decides the order.
 *
 * *Gotchas* A replica reports its requests to the store once a second (a beat), and learns of places whose message
 * was lost. When the store does not answer a beat, all waiting requests are refused, because their turn is unknown.
 * Requests that have a place go on, and their places live until the lease ends.
 */
import { Context, type Effect, type Scope } from "effect"
import type { CapacityExceeded, ShuttingDown, Unavailable } from "../../domain/Errors.ts"
import type { Evidence } from "../../domain/Evidence.ts"
import type { ModelUse } from "./QueueStore.ts"

/** The queue, as this replica sees it. */
export interface QueueStatus {
  /** requests of this replica that have a place */
  readonly running: number
  /** requests of this replica that wait, by tenant id */
  readonly waiting: ReadonlyMap<string, number>
  /** the models that are loaded or waited for, over all replicas, at the last beat */
  readonly models: ReadonlyArray<ModelUse>
}

/** What a request used, when it gives up its place. */
export interface Used {
  readonly tokens: number
  /** how long the model server loaded its model before it began; undefined: it did not say */
  readonly loadMs: number | undefined
}

export class FairQueue extends Context.Service<
  FairQueue,
  {
    /** Whether `BACKEND_MAX_CONCURRENT` is set. Without it there is no queue, and `enter` returns at once. */
    readonly limited: boolean
    /**
     * Waits for a place, at most `QUEUE_MAX_WAIT_MS`. Closing the scope gives it back; `used` is then called for what
     * the request used. An interrupted wait leaves the queue and costs nothing. A request without a slot
     * (`show`) needs no place.
     *
     * Fails with `CapacityExceeded` when too many wait or the wait was too long, with `Unavailable` when the store does not
     * answer, and with `ShuttingDown` when this process or the key stops.
     */
    enter(
      reserved: Evidence<"Limiter">,
      used: () => Used
    ): Effect.Effect<Evidence<"Queue">, CapacityExceeded | ShuttingDown | Unavailable, Scope.Scope>
    /** The models that the model server says it has loaded, asked for `agoMs` ago. */
    readonly seeLoaded: (names: ReadonlyArray<string>, agoMs: number) => void
    /** For metrics, without I/O. */
    readonly status: () => QueueStatus
  }
>()("tollgate/gates/queue/FairQueue") {}
