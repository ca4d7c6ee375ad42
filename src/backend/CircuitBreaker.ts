/**
 * The circuit breaker in front of the model server. `BREAKER_FAILURES` consecutive failures of one key open the circuit of that
 * key. As many of two or more keys, or an outage among them, open the circuit for everybody. An open circuit refuses requests for
 * `BREAKER_OPEN_MS`, and then lets one through as a probe (`Circuit.ts`).
 */
import { Context, type Effect, type Exit } from "effect"
import type { Caller } from "../domain/Caller.ts"
import type { CircuitOpen } from "../domain/Errors.ts"
import type { BreakerState } from "./Circuit.ts"

/**
 * What an error says of the model server. `outage`: a failure that no request can cause. `failure`: this one may have. `own`: this one
 * is likely to have, so it counts for its key alone.
 */
export type Verdict = "outage" | "failure" | "own" | "ignored"

/** The caller of a call. */
export type Party = Pick<Caller, "keyId" | "keyPrefix">

/** The first part of a call has succeeded. */
export interface Guarded<A, E> {
  readonly value: A
  /** Reports once how the rest of the call ended. A client that left is no result. */
  report(exit: Exit.Exit<unknown, E>): Effect.Effect<void>
}

export class CircuitBreaker extends Context.Service<
  CircuitBreaker,
  {
    /** Fails as `guard` would. Reserves nothing: `guard` decides again. */
    check(party: Party): Effect.Effect<void, CircuitOpen>
    /** Runs `head`, the part of a call up to its first frame, or fails with `CircuitOpen`. */
    guard<A, E, R>(
      party: Party,
      head: Effect.Effect<A, E, R>,
      verdictOf: (error: E) => Verdict
    ): Effect.Effect<Guarded<A, E>, E | CircuitOpen, R>
    /** The state of the circuit for everybody. */
    readonly state: Effect.Effect<BreakerState>
    /** How many keys are refused by their own circuit. */
    readonly openKeys: Effect.Effect<number>
  }
>()("tollgate/backend/CircuitBreaker") {}
