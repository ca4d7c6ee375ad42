/** What a request holds of its counters. */
import type { Effect } from "effect"
import { type Budgets, type BudgetScope, type EffectiveLimits, noBudgets, type Period } from "./Limits.ts"
import { withoutDefaultTag } from "./modelName.ts"

/**
 * The owner of windows, slots and counters: a key, together with the keys that replaced it; one of its end users, by the id of
 * `domain/EndUser.ts`; or its use of one model, by the model's name without `:latest`. `group` is its tenant.
 */
export interface Account {
  readonly group: string
  readonly key: string
  readonly user?: string
  readonly model?: string
}

/** The owner of counters: an account, or without `key` the group itself. */
export interface CounterOwner {
  readonly group: string
  readonly key?: string | undefined
  readonly user?: string | undefined
  readonly model?: string | undefined
}

/** The limits and budgets of an end user of a key, or of a key for one model. */
export interface PartLimits {
  readonly limits: EffectiveLimits
  readonly budgets: Budgets
}

export interface ModelLimits extends PartLimits {
  /** the model's name without `:latest` */
  readonly name: string
}

/** The limits that a request is checked against. An absent budget period is neither checked nor counted. */
export interface Claims extends PartLimits {
  readonly account: Account
  /** budgets of the group; absent: none */
  readonly tenantBudgets?: Budgets
  /** the end user, whose account is claimed beside that of the key; absent: none has one */
  readonly user?: PartLimits & { readonly id: string }
  /** the model, when the key has limits for it: they have an account too */
  readonly model?: ModelLimits
}

/** A group has no windows, so it has no account. */
export type AccountScope = Exclude<BudgetScope, "tenant">

/** An account that a request claims, and what it may use there. */
interface ClaimedAccount extends PartLimits {
  readonly scope: AccountScope
  readonly account: Account
}

/** The accounts of the user and of the model come after that of the key. */
export const accountsOf = (claims: Claims): ReadonlyArray<ClaimedAccount> => {
  const { account, budgets, limits, model, user } = claims
  const accounts: Array<ClaimedAccount> = [{ scope: "key", account, limits, budgets }]
  if (user !== undefined) accounts.push({ ...user, scope: "user", account: { ...account, user: user.id } })
  if (model !== undefined)
    accounts.push({ ...model, scope: "model", account: { ...account, model: model.name } })
  return accounts
}

/** An owner of counters that a request claims. */
interface ClaimedOwner {
  readonly scope: BudgetScope
  readonly owner: CounterOwner
}

/** The owners of the counters of a request, in the order of the counters. */
export const ownersOf = (claims: Claims): ReadonlyArray<ClaimedOwner> => {
  const owners: Array<ClaimedOwner> = []
  for (const { account, scope } of accountsOf(claims)) {
    owners.push({ scope, owner: account })
    if (scope === "key") owners.push({ scope: "tenant", owner: { group: account.group } })
  }
  return owners
}

const noLimits: PartLimits = { limits: { rpm: 0, tpm: 0, concurrent: 0 }, budgets: noBudgets }

/** What of an account a request may have claimed beside it. */
type Parts = Pick<Account, "user" | "model">

/** As a row of the audit names them. Of a key without limits for the model, the account of the model decides nothing. */
export const partsOf = (user: string | null, model: string | null): Parts => ({
  ...(user === null ? {} : { user }),
  ...(model === null ? {} : { model: withoutDefaultTag(model) })
})

/** Claims of a call that checks no limit, because it only ends a request. */
export const claimsWithoutLimits = (account: Account, { model, user }: Parts = {}): Claims => ({
  account,
  ...noLimits,
  ...(user === undefined ? {} : { user: { id: user, ...noLimits } }),
  ...(model === undefined ? {} : { model: { name: model, ...noLimits } })
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
