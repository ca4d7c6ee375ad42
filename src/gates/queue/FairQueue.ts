/**
 * The line in front of the backend, as one request sees it: it waits for a place and gives it back. At most
 * `BACKEND_MAX_CONCURRENT` requests have one, over all replicas; `QueueStore` says whose turn it is.
 *
 * *Gotchas* A replica tells the store once a second which requests it has (a beat), and learns of places whose message
 * was lost. A store that does not answer a beat refuses everybody who waits here: nobody knows their turn any more.
 * Requests that have a place go on, and their places live until the lease ends.
 */
import { Context, type Effect, type Scope } from "effect"
import type { CapacityExceeded, Unavailable } from "../../domain/Errors.ts"
import type { Evidence } from "../../domain/Evidence.ts"

/** What the line looks like from this replica. */
export interface QueueStatus {
  /** requests of this replica that have a place */
  readonly running: number
  /** requests of this replica that wait, by tenant id */
  readonly waiting: ReadonlyMap<string, number>
}

export class FairQueue extends Context.Service<
  FairQueue,
  {
    /** Whether `BACKEND_MAX_CONCURRENT` is set. Without it there is no line, and `enter` answers at once. */
    readonly limited: boolean
    /**
     * Waits for a place, at most `QUEUE_MAX_WAIT_MS`. Closing the scope gives it back; `used` is asked then for the tokens
     * of the request. Whoever is interrupted while waiting has left the line and cost nothing. A request without a slot
     * (`show`) needs no place.
     *
     * Fails with `CapacityExceeded` when too many wait or the wait was too long, with `Unavailable` when the store does
     * not answer.
     */
    enter(
      reserved: Evidence<"Limiter">,
      used: () => number
    ): Effect.Effect<Evidence<"Queue">, CapacityExceeded | Unavailable, Scope.Scope>
    /** For metrics and status; without I/O. */
    readonly status: () => QueueStatus
  }
>()("tollgate/gates/queue/FairQueue") {}
