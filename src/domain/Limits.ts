/**
 * Limits, budgets and their remainders. All amounts are whole numbers: requests, tokens, or slots.
 */

export const periods = ["day", "week", "month", "total"] as const
/** A budget period: the day, the ISO week or the month of the time zone (`Calendar.ts`), or for ever. */
export type Period = (typeof periods)[number]

export const isPeriod = (name: string): name is Period => periods.some((period) => period === name)

/** The limits of one key, its own or its tenant's. They are never null: there is no "unlimited". */
export interface EffectiveLimits {
  /** requests per 60 s */
  readonly rpm: number
  /** tokens per 60 s */
  readonly tpm: number
  /** requests at the same time */
  readonly concurrent: number
}

/**
 * More tokens for a while (`add-budget`). Until its end it raises each budget of its owner by what was left of its tokens when the
 * period began: all that is used counts against it first. So it needs no counter but the one of all time.
 */
export interface ExtraBudget {
  readonly tokens: number
  /** what the owner will have used in all when these tokens are used */
  readonly upTo: number
  /** its end, epoch ms */
  readonly until: number
}

/** What an extra budget adds to the budget of a period now: `spent` of the owner in the period, and `total` for ever. */
export const extraOf = (
  extra: ExtraBudget | undefined,
  now: number,
  { spent, total }: { readonly spent: number; readonly total: number }
): number =>
  extra === undefined || now >= extra.until
    ? 0
    : Math.max(0, Math.min(extra.tokens, extra.upTo - (total - spent)))

/** Token budgets of a key or of a tenant. An absent period has no budget. */
export type Budgets = { readonly [P in Period]?: number } & { readonly extra?: ExtraBudget }

/** No budget of any period. */
export const noBudgets: Budgets = {}

/** Whose budget it is: the key's, the one that all keys of its tenant share, that of one end user of the key, or the key's for one model. */
const budgetScopes = ["key", "tenant", "user", "model"] as const
export type BudgetScope = (typeof budgetScopes)[number]

export interface BudgetName {
  readonly scope: BudgetScope
  readonly period: Period
}

/** The budgets of these scopes. The counters are stored and checked in this order. */
export const budgetNamesOf = (scopes: ReadonlyArray<BudgetScope>): ReadonlyArray<BudgetName> =>
  scopes.flatMap((scope) => periods.map((period) => ({ scope, period })))

const budgetNames = budgetNamesOf(budgetScopes)

/** Percentages of a budget at which operators are warned. */
export const budgetThresholds = [80, 95] as const

/** How far a budget is spent: `ok`, the highest threshold that is reached, or `spent`. */
export const budgetStates = ["ok", "80%", "95%", "spent"] as const
export type BudgetUse = (typeof budgetStates)[number]

export const budgetUseOf = (budget: number, spent: number): BudgetUse => {
  if (spent >= budget) return "spent"
  const reached = budgetThresholds.filter((threshold) => spent * 100 >= budget * threshold).length
  return budgetStates[reached] ?? "ok"
}

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

/**
 * What is left of a key's limits and budgets, at one instant of the store's clock. Of limits the user's or the model's, when less is
 * left there.
 */
export interface Headroom {
  readonly requests: Remaining
  readonly tokens: Remaining
  readonly budgets: { readonly [P in Period]?: Remaining }
  /** of the budgets that the key shares with its tenant; absent when there are none */
  readonly tenantBudgets?: { readonly [P in Period]?: Remaining }
  /** of the budgets of the end user; absent when there are none */
  readonly userBudgets?: { readonly [P in Period]?: Remaining }
  /** of the budgets for the model; absent when there are none */
  readonly modelBudgets?: { readonly [P in Period]?: Remaining }
  /** present when one of the limits is that for the model */
  readonly ofModel?: true
  readonly resets: Resets
}

/** Nothing is used. For samples and tests. */
export const noResets: Resets = {
  requestsMs: 0,
  tokensMs: 0,
  budgetsS: { day: 0, week: 0, month: 0, total: 0 }
}

/** The place of each period among those that end now, the last one last: a week may end after its month. */
export const orderOf = (weekIsLater: boolean): ReadonlyArray<Period> =>
  weekIsLater ? ["day", "month", "week", "total"] : periods

/**
 * The budget that binds: the one with the fewest tokens left. Of those with none left it is the last to end, in the order of
 * `budgetScopes`.
 */
export const bindingBudget = (
  headroom: Pick<Headroom, "budgets" | "tenantBudgets" | "userBudgets" | "modelBudgets" | "resets">
): (BudgetName & { readonly left: Remaining }) | undefined => {
  const { month, week } = headroom.resets.budgetsS
  const order = orderOf(week > month)
  const { budgets: key, modelBudgets: model, tenantBudgets: tenant, userBudgets: user } = headroom
  const states = { key, tenant, user, model }
  let binding: (BudgetName & { readonly left: Remaining }) | undefined
  for (const { period, scope } of budgetNames) {
    const left = states[scope]?.[period]
    if (left === undefined) continue
    const fewer = binding === undefined || left.remaining < binding.left.remaining
    const endsLater =
      left.remaining === 0 && binding !== undefined && order.indexOf(period) > order.indexOf(binding.period)
    if (fewer || endsLater) binding = { period, scope, left }
  }
  return binding
}
