/** What a request holds of its counters, as plain data: the gates make it, the audit stores it, any replica settles it. */
import type { Budgets, EffectiveLimits, Period } from "./Limits.ts"

/** Whose counters: `group` (the tenant) only places them together, so that a cluster keeps them on one node. */
export interface Account {
  readonly group: string
  readonly key: string
}

/** The limits a request is held against. A budget period that is absent is neither checked nor counted. */
export interface Claims {
  readonly account: Account
  readonly limits: EffectiveLimits
  readonly budgets: Budgets
}

/** Names a counter: `2026-11-21` for day, `2026-11` for month, `total` for total. */
export type Bucket = string

/** An admitted request's grip on the counters. Plain data: it can be handed to any replica. */
export interface Reservation {
  readonly id: string
  readonly claims: Claims
  /** tokens held now */
  readonly held: number
  /** the most tokens this request could have been given when it was admitted: the smallest remainder */
  readonly available: number
  /** store time of admission, epoch ms; fixes the budget periods */
  readonly admittedAt: number
  /** the counters it is charged to */
  readonly buckets: { readonly [P in Period]?: Bucket }
  readonly slot: boolean
}
