/**
 * The circuit breaker for the backend. It opens after `BREAKER_FAILURES` consecutive failures, stays open for
 * `BREAKER_OPEN_MS`, and then lets one request through as a probe. It is fair among keys and tenants (`Circuit.ts`).
 *
 * The caller defines which errors are failures. A client that leaves is neither success nor failure; if it had the
 * probe, the next request becomes the probe. A result that arrives after a change of state is ignored.
 */
import { Context, type Effect } from "effect"
import type { CircuitOpen } from "../domain/Errors.ts"
import type { BreakerState, Party } from "./Circuit.ts"

/** The result of a head, with a function to report how the stream ended. */
export interface Guarded<A> {
  readonly value: A
  /** Reports the end of the stream, once. Not called when the client left. */
  report(outcome: "success" | "failure"): Effect.Effect<void>
}

export class CircuitBreaker extends Context.Service<
  CircuitBreaker,
  {
    /** Fails as `guard` would for a call of `party` made now. Reserves nothing: `guard` decides again. */
    check(party: Party): Effect.Effect<void, CircuitOpen>
    /**
     * Runs `head`, the part of a call up to its first frame, if the breaker lets `party`; else fails with `CircuitOpen`.
     * `isFailure` says which of its errors speak against the backend. A head that succeeds proves a probe, but does not
     * by itself end a streak of failures: streams that all break after their first frame open the breaker too.
     */
    guard<A, E, R>(
      party: Party,
      head: Effect.Effect<A, E, R>,
      isFailure: (error: E) => boolean
    ): Effect.Effect<Guarded<A>, E | CircuitOpen, R>
    readonly state: Effect.Effect<BreakerState>
  }
>()("tollgate/backend/CircuitBreaker") {}
