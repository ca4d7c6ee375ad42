/**
 * The circuit breaker for the backend. It opens after `BREAKER_FAILURES` consecutive failures, stays open for
 * `BREAKER_OPEN_MS`, and then lets one request through as a probe. It is fair among keys and tenants (`Circuit.ts`).
 *
 * The caller decides which errors are failures. A client that leaves counts as neither; if its call was the probe, the
 * next call becomes the probe. A result that arrives after a change of state is ignored.
 */
import { Context, type Effect } from "effect"
import type { CircuitOpen } from "../domain/Errors.ts"
import type { BreakerState, Party } from "./Circuit.ts"

/** The first part of a call has succeeded. */
export interface Guarded<A> {
  readonly value: A
  /** Reports how the stream ended, once, and the effect must be run at once. Not called when the client left. */
  report(outcome: "success" | "failure"): Effect.Effect<void>
}

export class CircuitBreaker extends Context.Service<
  CircuitBreaker,
  {
    /**
     * Fails as `guard` would for a call of `party` made now; it may decide when it is called, so the effect must be run at
     * once. Reserves nothing: `guard` decides again.
     */
    check(party: Party): Effect.Effect<void, CircuitOpen>
    /** Whether the circuit was closed when this process last heard of it. It decides nothing: `check` and `guard` do. */
    readonly isClosed: () => boolean
    /**
     * Runs `head`, the part of a call up to its first frame, or fails with `CircuitOpen`. `isFailure` decides which of
     * its errors count as failures of the backend. A successful head closes the circuit after a probe. It does not end
     * a streak of failures, because streams that all break after their first frame must open the circuit.
     */
    guard<A, E, R>(
      party: Party,
      head: Effect.Effect<A, E, R>,
      isFailure: (error: E) => boolean
    ): Effect.Effect<Guarded<A>, E | CircuitOpen, R>
    readonly state: Effect.Effect<BreakerState>
  }
>()("tollgate/backend/CircuitBreaker") {}
