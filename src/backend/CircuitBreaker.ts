/**
 * The breaker toward the backend: opens after `BREAKER_FAILURES` consecutive failures, stays open for
 * `BREAKER_OPEN_MS`, then lets one request through as a probe. Fair among keys and tenants: see `Circuit.ts`.
 *
 * The caller says what counts as a failure. A client that leaves is neither success nor failure, and a probe
 * whose client leaves gives its place back. A result that arrives after the breaker has changed its state is ignored.
 */
import { Context, type Effect } from "effect"
import type { CircuitOpen } from "../domain/Errors.ts"
import type { BreakerState, Party } from "./Circuit.ts"

/** What a head gave, with the way to say how the rest of the call went. */
export interface Guarded<A> {
  readonly value: A
  /** The stream behind this head has ended: well, or badly. Once; not called when the client left. */
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
