/**
 * The breaker toward the backend: opens after `BREAKER_FAILURES` consecutive failures, stays open for
 * `BREAKER_OPEN_MS`, then lets exactly one request through as a probe.
 *
 * What counts as a failure is the caller's to say (contract §7); a client that leaves is neither success nor
 * failure, and a probe whose client leaves gives its place back. A result that arrives after the breaker has
 * changed its state in between is ignored.
 */
import { Context, type Effect } from "effect"
import type { BackendFailed } from "../domain/Errors.ts"

/** `open` refuses; `half-open` lets the next request through, one at a time. */
export type BreakerState = "closed" | "open" | "half-open"

/** What a head gave, with the way to say how the rest of the call went. */
export interface Guarded<A> {
  readonly value: A
  /** The stream behind this head has ended: well, or badly. Once; not called when the client left. */
  report(outcome: "success" | "failure"): Effect.Effect<void>
}

export class CircuitBreaker extends Context.Service<
  CircuitBreaker,
  {
    /**
     * Runs `head`, the part of a call up to its first frame, if the breaker lets it; else fails with
     * `circuit-open`. `isFailure` says which of its errors speak against the backend. A head that succeeds proves
     * a probe, but does not by itself end a streak of failures: streams that all break after their first frame
     * open the breaker too.
     */
    guard<A, E, R>(
      head: Effect.Effect<A, E, R>,
      isFailure: (error: E) => boolean
    ): Effect.Effect<Guarded<A>, E | BackendFailed, R>
    readonly state: Effect.Effect<BreakerState>
  }
>()("tollgate/backend/CircuitBreaker") {}
