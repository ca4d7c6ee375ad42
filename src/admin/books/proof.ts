/** What a proof of the books says. */
import type { Sums } from "../../ledger/audited.ts"
import type { Period as BudgetPeriod } from "../../domain/Limits.ts"

/** Differences that are found. With more, a repair mends these, and the next one mends others. */
export const mostDifferences = 10_000
/** Differences that are named with their requests, and requests that are named of each. */
export const mostNamed = 100
export const mostRequests = 20

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
  /** the prefix, or the id of a key that does not exist, with the account of an end user or the model; null: all keys of the tenant */
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
  /** both are included */
  readonly days: { readonly since: string; readonly until: string }
  /** days of keys that were compared, and their sums */
  readonly compared: { readonly keysAndDays: number; readonly audit: Sums; readonly ledger: Sums }
  /** the audit of these days of keys was dropped, so they are not compared; `before`: a day */
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
