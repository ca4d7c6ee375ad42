/** What a request holds of its counters. It is plain data, so the audit can store it and any replica can settle it. */
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
  /** the smallest remainder of all its counters at admission */
  readonly available: number
  /** admission time by the store's clock, epoch ms; decides the budget periods */
  readonly admittedAt: number
  /** the budget counters that are charged */
  readonly buckets: { readonly [P in Period]?: Bucket }
  readonly slot: boolean
}

/** A place at the backend, among those of `BACKEND_MAX_CONCURRENT`. */
export interface Place {
  /** milliseconds the request waited for it */
  readonly queuedMs: number
  /** Gives the place to the next request, when the backend is done with this one. A second call does nothing. */
  readonly giveBack: Effect.Effect<void>
}
