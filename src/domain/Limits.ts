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

/** What is left of a key's limits and budgets, at one instant of the store's clock. */
export interface Headroom {
  readonly requests: Remaining
  readonly tokens: Remaining
  readonly budgets: { readonly [P in Period]?: Remaining }
}

/** The binding period: the budget period with the fewest tokens left. */
export const bindingPeriod = (
  budgets: Headroom["budgets"]
): { readonly period: Period; readonly left: Remaining } | undefined => {
  let binding: { readonly period: Period; readonly left: Remaining } | undefined
  for (const period of periods) {
    const left = budgets[period]
    if (left !== undefined && (binding === undefined || left.remaining < binding.left.remaining)) {
      binding = { period, left }
    }
  }
  return binding
}
