/**
 * Live counters: windows, leases and totals of one account, decided and written in one atomic step.
 *
 * The Meter does not know keys, tenants or HTTP. The Limiter and the Budget make the claims and read the verdict.
 *
 * A counter that the store does not know is never read as zero: `reserve` and `peek` return `Missing`, and the caller
 * loads the counter from the ledger first.
 */
import { Context, Data, type Effect } from "effect"
import { Unavailable } from "../../domain/Errors.ts"
import type { BudgetScope, Headroom, Period } from "../../domain/Limits.ts"
import type {
  Account,
  Claims,
  CounterName,
  CounterOwner,
  Counters,
  Reservation
} from "../../domain/Reservation.ts"

/** The store did not answer in time, or its answer makes no sense: no request may be admitted. */
export class MeterDown extends Data.TaggedError("MeterDown")<{ readonly cause: unknown }> {}

/** The error of a request that is refused for this reason. */
export const meterUnavailable = ({ cause }: MeterDown): Unavailable =>
  new Unavailable({ gate: "Limiter", cause })

/** What one request asks for. */
export interface ReserveRequest {
  readonly id: string
  /** tokens to hold; the grant is at most what remains. 0 claims no tokens, so it is not refused when none remain */
  readonly tokens: number
  /**
   * The part of `tokens` that the request is charged in any case: its prompt, and one token of the answer. It is held in
   * full. Otherwise the counters would be below the ledger until the store gets the end of the request. Default 0
   */
  readonly least?: number
  /** whether it occupies a concurrency slot */
  readonly slot: boolean
}

export class Reserved extends Data.TaggedClass("Reserved")<{
  readonly reservation: Reservation
  readonly headroom: Headroom
}> {}

/** `users`: the account has too many users whose accounts are in use */
export type ClaimName = "requests" | "tokens" | "concurrency" | "users" | Period

/** The first claim, in the order of `ClaimName`, that has no room. */
export class Refused extends Data.TaggedClass("Refused")<{
  readonly by: ClaimName
  /** whose claim it is; `tenant` for budgets only, `key` for `users` */
  readonly scope: BudgetScope
  readonly limit: number
  /** of a budget: it is used up, not only held by requests that run */
  readonly isSpent: boolean
  /** whole seconds, at least 1, until the same request could pass */
  readonly retryAfterS: number
  readonly headroom: Headroom
}> {}

/** Counters that must be loaded from the ledger before a request can be admitted. */
export class Missing extends Data.TaggedClass("Missing")<{
  /** epoch ms, in the periods of the counters */
  readonly instant: number
  /** of the account */
  readonly counters: Counters
  /** of its group; absent: none */
  readonly tenantCounters?: Counters
  /** of the account of its user; absent: none */
  readonly userCounters?: Counters
  /** of the account for its model; absent: none */
  readonly modelCounters?: Counters
}> {}

export type Verdict = Reserved | Refused | Missing

export interface Renewal {
  /** tokens held after the renewal */
  readonly held: number
  /** true when less than `want` could be held because a limit or budget has nothing more to give */
  readonly exhausted: boolean
}

/** Whose counters are compared with the ledger: an account, or a group with the accounts whose requests change its counters. */
export type Surveyed =
  | Account
  | { readonly group: string; readonly accounts: ReadonlyArray<string>; readonly key?: undefined }

/** The state of counters, to compare them with the ledger. */
export interface Snapshot {
  /** the counters that exist, of the periods that contain the given instant */
  readonly totals: { readonly [P in Period]?: number }
  /** requests whose lease has not ended; of a group: its accounts with an open request */
  readonly open: number
  /** ids of requests of an account whose lease has ended and that still hold tokens */
  readonly lapsed: ReadonlyArray<string>
  /** changes with every change of the counters, and of each account of a group */
  readonly mark: number
}

/**
 * Guarantees of both twins, to which `test/contract/Meter.ts` holds them
 * - `reserve` writes everything or nothing; a refusal consumes nothing.
 * - Every mutation is idempotent by request id: repeated, late or reordered calls change nothing more. A
 *   `reserve` that arrives after its own `settle` or `cancel` is a no-op.
 * - In no 60-second span are more requests admitted than `rpm`, nor more tokens used than `tpm`. A request or token counts for
 *   60 to 60.5 s, so a steady client gets at least 0.99 of its limit (`bounds.ts`). Tokens enter a window when they are used;
 *   what is held but not yet used counts until it is used or released.
 * - A lease that ends frees its slot and nothing else: a process that is cut off from the store may still use what it
 *   holds. The tokens are released by `settle`, by `cancel`, or when the ledger does not know the request.
 * - Time is the store's own, never the host's.
 */
export class Meter extends Context.Service<
  Meter,
  {
    /** Admits or refuses, atomically. A repeated call with the same id returns what the first call returned. */
    reserve(claims: Claims, ask: ReserveRequest): Effect.Effect<Verdict, MeterDown>

    /**
     * Renews the lease or begins a new one, moves `used` tokens (in total so far) into the window, and tries to hold
     * `want` tokens in total, never less than it holds already. Creates slot and hold again if the store lost them.
     * No-op after `settle` or `cancel`.
     */
    renew(reservation: Reservation, used: number, want: number): Effect.Effect<Renewal, MeterDown>

    /** Ends the request with the tokens it really used, in total; frees slot and hold. Returns what is left now. */
    settle(reservation: Reservation, used: number): Effect.Effect<Headroom, MeterDown>

    /** Removes the request as if it had never been admitted, also from the window of requests. */
    cancel(reservation: Pick<Reservation, "id" | "claims">): Effect.Effect<void, MeterDown>

    /** What is left, without consuming anything. */
    peek(claims: Claims): Effect.Effect<Headroom | Missing, MeterDown>

    /** Sets counters that are missing. A counter that exists by now does not change. */
    load(
      owner: CounterOwner,
      counters: ReadonlyArray<{ readonly counter: CounterName; readonly tokens: number }>
    ): Effect.Effect<void, MeterDown>

    /** The totals for the instant `at` (epoch ms), without consuming anything. */
    snapshot(of: Surveyed, at: number): Effect.Effect<Snapshot, MeterDown>

    /**
     * Sets counters that exist to the figures of the ledger, if no request holds anything and nothing has changed since
     * the snapshot with `mark`. Returns whether it did.
     */
    repair(
      of: Surveyed,
      at: number,
      mark: number,
      totals: { readonly [P in Period]?: number }
    ): Effect.Effect<boolean, MeterDown>

    /**
     * Whether the store still has what was written before the last call of `hasState`. False means that it may have lost
     * everything: open requests should be renewed.
     */
    readonly hasState: Effect.Effect<boolean, MeterDown>

    /** Succeeds when the store can be written, for readiness. */
    readonly ping: Effect.Effect<void, MeterDown>
  }
>()("tollgate/gates/meter/Meter") {}
