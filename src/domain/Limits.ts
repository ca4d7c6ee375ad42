/**
 * Limits, budgets and their remainders. All amounts are whole numbers: requests, tokens, or slots.
 */

export const periods = ["day", "month", "total"] as const
/** A budget period: the UTC day, the UTC month, or for ever. */
export type Period = (typeof periods)[number]

/** The limits of one key, its own or its tenant's. They are never null: there is no "unlimited". */
export interface EffectiveLimits {
  /** requests per 60 s */
  readonly rpm: number
  /** tokens per 60 s */
  readonly tpm: number
  /** requests at the same time */
  readonly concurrent: number
}

/** Token budgets of one key. An absent period has no budget. */
export type Budgets = { readonly [P in Period]?: number }

/** A limit and what is left of it, at least 0. */
export interface Remaining {
  readonly limit: number
  readonly remaining: number
}

/** How long it takes until everything is left again, if nothing more is used. */
export interface Resets {
  /** milliseconds until no request counts any more */
  readonly requestsMs: number
  /** milliseconds until no token counts any more; what is held counts as used now */
  readonly tokensMs: number
  /** whole seconds until the period ends */
  readonly budgetsS: { readonly [P in Period]: number }
}

/** What is left of a key's limits and budgets, at one instant of the store's clock. */
export interface Headroom {
  readonly requests: Remaining
  readonly tokens: Remaining
  readonly budgets: { readonly [P in Period]?: Remaining }
  readonly resets: Resets
}

/** Nothing is used. For samples and tests. */
export const noResets: Resets = { requestsMs: 0, tokensMs: 0, budgetsS: { day: 0, month: 0, total: 0 } }

/** The binding period: the budget period with the fewest tokens left; of those with none left, the last to end. */
export const bindingPeriod = (
  budgets: Headroom["budgets"]
): { readonly period: Period; readonly left: Remaining } | undefined => {
  let binding: { readonly period: Period; readonly left: Remaining } | undefined
  for (const period of periods) {
    const left = budgets[period]
    if (left === undefined) continue
    const binds = binding === undefined || left.remaining < binding.left.remaining || left.remaining === 0
    if (binds) binding = { period, left }
  }
  return binding
}
