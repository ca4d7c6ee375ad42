/**
 * Live counters: windows, leases and totals of one account, decided and written in one atomic step.
 *
 * The Meter knows nothing of keys, tenants or HTTP: Limiter and Budget bring the claims and read the verdict.
 *
 * **Guarantees** (both twins; `test/contract/Meter.ts` holds them to it)
 * - `reserve` writes everything or nothing; a refusal consumes nothing.
 * - Every mutation is idempotent by request id: repeated, late or reordered calls change nothing more. A
 *   `reserve` that arrives after its own `settle` or `cancel` is a no-op.
 * - In no 60-second span are more requests admitted than `rpm`, nor more tokens used than `tpm`. A request or token counts for
 *   60 to 60.5 s, so a steady client gets at least 0.99 of its limit (`bounds.ts`). Tokens enter a window when they are used;
 *   what is held but not yet used counts until it is used or released.
 * - A lease that ends frees its slot and nothing else: whoever is cut off from the store may still be using what it
 *   holds. `settle`, `cancel`, or the ledger's word that there is no such request, give the tokens free.
 * - Time is the store's own, never the host's.
 *
 * A total whose counter the store does not know is never taken for zero: `reserve` and `peek` answer
 * `Missing`, and the caller loads it from the ledger first.
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

/** The store did not answer in time or answered nonsense: nobody may be admitted on it. */
export class MeterDown extends Data.TaggedError("MeterDown")<{ readonly cause: unknown }> {}

/** What a request is refused with then. */
export const meterUnavailable = ({ cause }: MeterDown): Unavailable =>
  new Unavailable({ gate: "Limiter", cause })

/** What one request asks for. */
export interface ReserveRequest {
  readonly id: string
  /** tokens to hold; granted clipped to what remains. 0 claims no tokens and is not refused for lack of them */
  readonly tokens: number
  /**
   * Of them, what it will be charged whatever remains: its prompt, and a token of the answer. Held in full, or the
   * counters would stand below the ledger for as long as its end cannot be told to the store. 0
   */
  readonly least?: number
  /** whether it occupies a concurrency slot */
  readonly slot: boolean
}

export class Reserved extends Data.TaggedClass("Reserved")<{
  readonly reservation: Reservation
  readonly headroom: Headroom
}> {}

export type ClaimName = "requests" | "tokens" | "concurrency" | Period

/** The first claim, in the order of `ClaimName`, that has no room. */
export class Refused extends Data.TaggedClass("Refused")<{
  readonly by: ClaimName
  /** whose claim it is; `tenant` for budgets only */
  readonly scope: BudgetScope
  readonly limit: number
  /** whole seconds, at least 1, until the same request could pass */
  readonly retryAfterS: number
  readonly headroom: Headroom
}> {}

/** Counters that have to be loaded from the ledger before anybody is admitted on them. */
export class Missing extends Data.TaggedClass("Missing")<{
  /** of the account */
  readonly counters: Counters
  /** of its group; absent: none */
  readonly tenantCounters?: Counters
}> {}

export type Verdict = Reserved | Refused | Missing

export interface Renewal {
  /** tokens held after the renewal */
  readonly held: number
  /** true when less than `want` could be held because a limit or budget has nothing more to give */
  readonly exhausted: boolean
}

/** An account as it stands, for comparing it with the ledger. */
export interface Snapshot {
  /** the counters there are, of those that hold the instant asked about */
  readonly totals: { readonly [P in Period]?: number }
  /** requests whose lease has not ended */
  readonly open: number
  /** ids of requests whose lease has ended and which hold tokens all the same */
  readonly lapsed: ReadonlyArray<string>
  /** another one after every change of the account */
  readonly mark: number
}

export class Meter extends Context.Service<
  Meter,
  {
    /** Admits or refuses, atomically. A repeated call with the same id answers as the first did. */
    reserve(claims: Claims, ask: ReserveRequest): Effect.Effect<Verdict, MeterDown>

    /**
     * Renews the lease, or begins another, moves `used` tokens (so far, in total) into the window, and tries to
     * hold `want` tokens in total (never less than already held). Re-creates slot and hold if the store lost them.
     * No-op after `settle` or `cancel`.
     */
    renew(reservation: Reservation, used: number, want: number): Effect.Effect<Renewal, MeterDown>

    /**
     * Ends the request with what it really used, in total; frees slot and hold. Answers what is left now. With
     * `keepSlot` its slot, if it has one, stays taken on a new lease until `freeSlot`: its answer is still being written.
     */
    settle(
      reservation: Reservation,
      used: number,
      options?: { readonly keepSlot: boolean }
    ): Effect.Effect<Headroom, MeterDown>

    /**
     * Renews the lease of a slot that `settle` kept. Takes the slot again if the store has lost the request. No-op before
     * `settle`, after `freeSlot`, and once the lease has ended.
     */
    renewSlot(reservation: Reservation): Effect.Effect<void, MeterDown>

    /** Frees a slot that `settle` kept. No-op before `settle`. */
    freeSlot(reservation: Reservation): Effect.Effect<void, MeterDown>

    /** Undoes the request as if it had never been admitted, its place in the request window included. */
    cancel(reservation: Pick<Reservation, "id" | "claims">): Effect.Effect<void, MeterDown>

    /** What is left, without consuming anything. */
    peek(claims: Claims): Effect.Effect<Headroom | Missing, MeterDown>

    /** Sets counters that are missing; one that exists meanwhile is left as it is. */
    load(
      owner: CounterOwner,
      counters: ReadonlyArray<{ readonly counter: CounterName; readonly tokens: number }>
    ): Effect.Effect<void, MeterDown>

    /** The account's totals for the instant `at` (epoch ms), without consuming anything. */
    snapshot(account: Account, at: number): Effect.Effect<Snapshot, MeterDown>

    /**
     * Sets totals that exist to what the ledger says, if nobody holds anything and nothing has changed since the
     * survey that had `mark`; answers whether it did.
     */
    repair(
      account: Account,
      at: number,
      mark: number,
      totals: { readonly [P in Period]?: number }
    ): Effect.Effect<boolean, MeterDown>

    /**
     * The counters of a group for the instant `at`, beside its accounts `keys`. It is idle when no account has an open
     * request; `open` counts those. `mark` changes with the counters and with each of the accounts.
     */
    snapshotGroup(
      group: string,
      keys: ReadonlyArray<string>,
      at: number
    ): Effect.Effect<Pick<Snapshot, "mark" | "open" | "totals">, MeterDown>

    /** As `repair`, for the counters of a group: `keys` and `mark` are those of a snapshot. */
    repairGroup(
      group: string,
      keys: ReadonlyArray<string>,
      at: number,
      mark: number,
      totals: { readonly [P in Period]?: number }
    ): Effect.Effect<boolean, MeterDown>

    /**
     * Whether the store still knows what it was told when this was last asked. False means that it may have lost
     * everything: what is under way should be renewed.
     */
    readonly hasState: Effect.Effect<boolean, MeterDown>

    /** Answers when the store answers: for readiness. */
    readonly ping: Effect.Effect<void, MeterDown>
  }
>()("tollgate/gates/meter/Meter") {}
