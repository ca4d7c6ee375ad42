/** What a request holds of its counters. */
import type { Effect } from "effect"
import { type Budgets, type EffectiveLimits, noBudgets, type Period } from "./Limits.ts"

/**
 * The owner of windows, slots and counters: a key, together with the keys that replaced it, or one of its end users, by the
 * id of `domain/EndUser.ts`. `group` is its tenant.
 */
export interface Account {
  readonly group: string
  readonly key: string
  readonly user?: string
}

/** The owner of counters: an account, or without `key` the group itself. */
export interface CounterOwner {
  readonly group: string
  readonly key?: string | undefined
  readonly user?: string | undefined
}

/** The limits and budgets of each end user of a key. */
export interface UserLimits {
  readonly limits: EffectiveLimits
  readonly budgets: Budgets
}

/** The limits that a request is checked against. An absent budget period is neither checked nor counted. */
export interface Claims {
  readonly account: Account
  readonly limits: EffectiveLimits
  readonly budgets: Budgets
  /** budgets of the group; absent: none */
  readonly tenantBudgets?: Budgets
  /** the end user, whose account is claimed beside that of the key; absent: none has one */
  readonly user?: UserLimits & { readonly id: string }
}

/** The account of the end user. */
export const userAccountOf = ({ account, user }: Claims): Account | undefined =>
  user === undefined ? undefined : { ...account, user: user.id }

const noLimits: UserLimits = { limits: { rpm: 0, tpm: 0, concurrent: 0 }, budgets: noBudgets }

/** Claims of a call that checks no limit, because it only ends a request. `user`: of an end user of the account. */
export const claimsWithoutLimits = (account: Account, user?: string | null): Claims => ({
  account,
  ...noLimits,
  ...(user === undefined || user === null ? {} : { user: { id: user, ...noLimits } })
})

/** The name of a counter: `2026-11-21` for a day, `w2026-11-16` for a week by its Monday, `2026-11` for a month, `total`. */
export type CounterName = string

/** A counter of each period, where there is one. */
export type Counters = { readonly [P in Period]?: CounterName }

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
  readonly slot: boolean
}

/** A place at the backend, among those of `BACKEND_MAX_CONCURRENT`. */
export interface Place {
  /** milliseconds the request waited for it */
  readonly queuedMs: number
  /** whether its model was loaded then; undefined: not known */
  readonly loaded: boolean | undefined
  /**
   * Gives the place to the next request, when the backend is done with this one. Returns how long the backend loaded the model
   * for it, ms; 0 when it was loaded, or loaded for another request. A second call only returns the same.
   */
  readonly giveBack: Effect.Effect<number>
}
