/**
 * A proof of the books, for operators: the audit with its corrections, the ledger, the live counters and the open intents
 * say the same.
 *
 * The database is read in one transaction that sees one moment. An audit row and its sum in the ledger are written in one
 * transaction, so requests that run make no difference between them. Counters change a moment before or after the ledger,
 * so a counter differs only when it differs in several looks in which nothing has changed and nothing was open.
 *
 * The audit is the truth for the ledger, and the ledger for the counters.
 */
import { Context, type Effect } from "effect"
import type { Period as BudgetPeriod } from "../../domain/Limits.ts"
import type { UnreadableRow } from "../../infra/rows.ts"
import type { CountersDown, InvalidValue, RegistryDown } from "../Errors.ts"
import type { Bounds } from "../records/period.ts"

/** Differences that are found. With more, a repair mends these, and the next one mends others. */
export const mostDifferences = 10_000
/** Differences that are named with their requests, and requests that are named of each. */
export const mostNamed = 100
export const mostRequests = 20

export interface Sums {
  readonly requests: number
  readonly tokensIn: number
  readonly tokensOut: number
}

/** Some ids of requests, and how many more there are. */
export interface Requests {
  readonly requests: ReadonlyArray<string>
  readonly moreRequests: number
  /** `exact`: each of these requests has the tokens by which the books differ; `involved`: one of all that were booked there */
  readonly match: "exact" | "involved"
}

interface Owner {
  /** null: there is no such tenant */
  readonly tenant: string | null
  /** the prefix, or the id of a key that does not exist, with the account of an end user of it; null: all keys of the tenant */
  readonly key: string | null
}

export type Difference = Owner &
  Requests &
  (
    | { readonly kind: "ledger"; readonly day: string; readonly audit: Sums; readonly ledger: Sums }
    | {
        readonly kind: "counter"
        readonly period: BudgetPeriod
        readonly counter: number
        readonly ledger: number
      }
    /** requests that ended, whose tokens the counters still hold */
    | { readonly kind: "hold" }
    /** requests whose process died, and that nobody ended; `inAudit`: their rows are written */
    | { readonly kind: "intent"; readonly inAudit: boolean }
  )

export interface Proof {
  /** UTC days; both are included */
  readonly days: { readonly since: string; readonly until: string }
  /** days of keys that were compared, and their sums */
  readonly compared: { readonly keysAndDays: number; readonly audit: Sums; readonly ledger: Sums }
  /** the audit of these days of keys was dropped, so they are not compared; `before`: a UTC day */
  readonly dropped: { readonly keysAndDays: number; readonly before: string } | undefined
  /**
   * `compared`: keys and tenants whose counters were compared; `busy`: those that were in use in each look, or have too many keys.
   * undefined: the counters are in the memory of the gateway.
   */
  readonly counters: { readonly compared: number; readonly busy: number } | undefined
  /** open requests whose processes live */
  readonly running: number
  readonly differences: ReadonlyArray<Difference>
  /** differences that are not named */
  readonly moreDifferences: number
}

/** What a repair did. */
export interface Mended {
  /** days of keys whose ledger is now as the audit says */
  readonly ledger: number
  /** corrections written for requests that the ledger has and the audit has lost */
  readonly corrections: number
  readonly counters: number
  readonly holds: number
  readonly intents: number
}

export interface Repaired {
  readonly before: Proof
  readonly mended: Mended
  readonly after: Proof
}

type Answer<A> = Effect.Effect<A, CountersDown | InvalidValue | RegistryDown | UnreadableRow>

export class Books extends Context.Service<
  Books,
  {
    /** Compares, and changes nothing. Default period: from the first of the month of `until`, until today. */
    compare(bounds: Bounds): Answer<Proof>
    /**
     * Compares, mends what differs, and compares again. It changes no audit row.
     *
     * - The ledger gets the sums of the audit. When the ledger has requests that the audit has lost, their tokens stay spent:
     *   each gets a correction under a new id.
     * - Counters get the figures of the ledger, when nothing of their owner is open.
     * - Requests of dead processes are ended as crash recovery ends them.
     */
    repair(bounds: Bounds): Answer<Repaired>
  }
>()("tollgate/admin/Books") {}
