/** What a request holds of its counters. It is plain data: the audit stores it, and any replica can settle it. */
import type { Effect } from "effect"
import type { Budgets, EffectiveLimits, Period } from "./Limits.ts"

/** The owner of counters. `group` (the tenant) keeps them on one node of a cluster. */
export interface Account {
  readonly group: string
  readonly key: string
}

/** The limits that a request is checked against. An absent budget period is neither checked nor counted. */
export interface Claims {
  readonly account: Account
  readonly limits: EffectiveLimits
  readonly budgets: Budgets
}

/** The name of a counter: `2026-11-21` for day, `2026-11` for month, `total` for total. */
export type Bucket = string

/** What an admitted request holds. */
export interface Reservation {
  readonly id: string
  readonly claims: Claims
  /** tokens held now */
  readonly held: number
  /** the most tokens that this request could get at its admission: the smallest remainder */
  readonly available: number
  /** admission time of the store, epoch ms; decides the budget periods */
  readonly admittedAt: number
  /** the counters it is charged to */
  readonly buckets: { readonly [P in Period]?: Bucket }
  readonly slot: boolean
}

/** A place at the backend, among those of `BACKEND_MAX_CONCURRENT`. */
export interface Place {
  /** milliseconds the request waited for it */
  readonly queuedMs: number
  /** The backend is done with the request: the place goes to the next. Again, it does nothing. */
  readonly giveBack: Effect.Effect<void>
}
