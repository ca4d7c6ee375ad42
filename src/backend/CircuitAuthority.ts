/**
 * The circuit of all workers of a gateway. One process has the state machine (`Circuit.ts`); the workers know whether it is
 * closed, report results, and ask for a probe. So a streak of failures counts over all workers, all of them open together,
 * and one probe runs at a time.
 */
import { Context, type Effect } from "effect"
import type { BreakerState, CallResult, Party } from "./Circuit.ts"

/** What all workers know of the circuit without asking. */
export interface CircuitView {
  readonly closed: boolean
  readonly generation: number
  readonly hasStreak: boolean
}

/** A call that was let through. `probe`: the number of the probe, or undefined for a call of a closed circuit. */
export interface Pass {
  readonly generation: number
  readonly probe: number | undefined
}

/** The result of a call. */
export interface Report {
  readonly party: Party
  readonly pass: Pass
  readonly outcome: CallResult
}

/** A caller, and how many milliseconds ago it came. Clocks of processes cannot be compared. */
export interface Sighting {
  readonly party: Party
  readonly agoMs: number
}

/** The last callers that were served, and that asked. */
export interface Seen {
  readonly served: ReadonlyArray<Sighting>
  readonly asked: ReadonlyArray<Sighting>
}

export class CircuitAuthority extends Context.Service<
  CircuitAuthority,
  {
    readonly view: () => CircuitView
    /** Lets a call through, or returns the milliseconds until one could be. */
    admit(party: Party): Effect.Effect<Pass | number>
    /** The milliseconds until a call of `party` could be let through. Reserves nothing. */
    waitMs(party: Party): Effect.Effect<number>
    /** Reports the first frame of a probe. Returns the pass of the rest of the call. */
    began(party: Party, pass: Pass): Effect.Effect<Pass>
    report(report: Report): Effect.Effect<void>
    seen(seen: Seen): Effect.Effect<void>
    readonly state: Effect.Effect<BreakerState>
  }
>()("tollgate/backend/CircuitAuthority") {}
