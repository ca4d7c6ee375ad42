/** What both twins answer alike: bucket names, headroom, refusals. */
import { type Day, dayMs, secondsToEndOf } from "../../domain/Calendar.ts"
import {
  type BudgetName,
  budgetNamesOf,
  type Budgets,
  type BudgetScope,
  type Headroom,
  isPeriod,
  type Period,
  periods,
  type Remaining
} from "../../domain/Limits.ts"
import { type ClaimName, Missing, Refused, type ReserveRequest } from "./Meter.ts"
import type { AccountScope, Claims, CounterName, Counters, Reservation } from "../../domain/Reservation.ts"

/** What an account has limits of, in the order in which they are checked. */
export const limitNames = ["requests", "tokens", "concurrency"] as const

/** What requests with the same parts claim. */
interface Shape {
  readonly accounts: ReadonlyArray<AccountScope>
  readonly budgets: ReadonlyArray<BudgetName>
  /** by number, as the scripts name them in a refusal */
  readonly claims: ReadonlyArray<{ readonly by: ClaimName; readonly scope: BudgetScope }>
}

const makeShape = (...parts: ReadonlyArray<"user" | "model">): Shape => {
  const accounts: ReadonlyArray<AccountScope> = ["key", ...parts]
  const budgets = budgetNamesOf(["key", "tenant", ...parts])
  return {
    accounts,
    budgets,
    claims: [
      ...accounts.flatMap((scope) => limitNames.map((by) => ({ by, scope }))),
      ...budgets.map(({ period, scope }) => ({ by: period, scope })),
      { by: "users", scope: "key" }
    ]
  }
}

const shapes = {
  ofKey: makeShape(),
  ofUser: makeShape("user"),
  ofModel: makeShape("model"),
  ofBoth: makeShape("user", "model")
}

export const shapeOf = ({ model, user }: Claims): Shape => {
  if (model === undefined) return user === undefined ? shapes.ofKey : shapes.ofUser
  return user === undefined ? shapes.ofModel : shapes.ofBoth
}

const ofScope = (claims: Claims, scope: BudgetScope): Budgets | undefined =>
  scope === "tenant" ? claims.tenantBudgets : (scope === "key" ? claims : claims[scope])?.budgets

/** The budget of each counter of the request; undefined for one that is not claimed. An extra budget claims the counter of all time. */
export const budgetsOf = (claims: Claims): ReadonlyArray<number | undefined> =>
  shapeOf(claims).budgets.map(({ period, scope }) => {
    const budgets = ofScope(claims, scope)
    const isCounted = period === "total" && budgets?.extra !== undefined
    return budgets?.[period] ?? (isCounted ? Number.MAX_SAFE_INTEGER : undefined)
  })

/**
 * How long a total is kept, in ms: well past its period, so that it is there when the period's last request
 * settles. A `total` that is dropped by then comes back from the ledger.
 */
export const lifeOf = (counter: CounterName): number => (/^\d{4}-\d{2}-\d{2}$/.test(counter) ? 4 : 40) * dayMs

/** Counts are whole and not negative, whatever a caller computed. */
export const whole = (tokens: number): number =>
  tokens > 0 ? Math.min(Math.ceil(tokens), Number.MAX_SAFE_INTEGER) : 0

/** What is held of an ask, however little remains. */
export const leastOf = ({ least = 0, tokens }: ReserveRequest): number =>
  Math.min(whole(least), whole(tokens))

/** What is left of the windows of an account. */
export interface WindowsLeft {
  readonly requests: number
  readonly tokens: number
  readonly requestsResetMs: number
  readonly tokensResetMs: number
}

/** What is left of the counters, as a store returns it. */
export interface Left {
  /** of each account, that of the key first */
  readonly windows: ReadonlyArray<WindowsLeft>
  /** in the order of the counters; below 0: not claimed, or not known */
  readonly budgets: ReadonlyArray<number>
  /** the store's time, epoch ms */
  readonly now: number
}

type PeriodsLeft = { -readonly [P in Period]?: Remaining }

const nothingLeft: WindowsLeft = { requests: 0, tokens: 0, requestsResetMs: 0, tokensResetMs: 0 }

/** `day`: in the periods of the budgets, that of the request's admission. With an extra budget more may be left than the limit. */
export const headroomOf = (claims: Claims, day: Day, { budgets, now, windows }: Left): Headroom => {
  const { accounts, budgets: names } = shapeOf(claims)
  const found: { [S in BudgetScope]?: PeriodsLeft } = { key: {} }
  for (let i = 0; i < names.length; i += 1) {
    const name = names[i]
    const remaining = budgets[i]
    if (name === undefined || remaining === undefined || remaining < 0) continue
    const limit = ofScope(claims, name.scope)?.[name.period]
    if (limit === undefined) continue
    const ofOwner = (found[name.scope] ??= {})
    ofOwner[name.period] = { limit: Math.max(limit, remaining), remaining }
  }
  let [requests, tokens] = [windows[0] ?? nothingLeft, windows[0] ?? nothingLeft]
  let { rpm, tpm } = claims.limits
  let ofModel = false
  for (let i = 1; i < windows.length; i += 1) {
    const [left, scope] = [windows[i], accounts[i]]
    const part = scope === undefined || scope === "key" ? undefined : claims[scope]
    if (left === undefined || part === undefined) continue
    const [isFewer, isLess] = [left.requests < requests.requests, left.tokens < tokens.tokens]
    if (isFewer) [requests, rpm] = [left, part.limits.rpm]
    if (isLess) [tokens, tpm] = [left, part.limits.tpm]
    if (scope === "model") ofModel = isFewer || isLess
  }
  const headroom: { -readonly [P in keyof Headroom]: Headroom[P] } = {
    requests: { limit: rpm, remaining: requests.requests },
    tokens: { limit: tpm, remaining: tokens.tokens },
    budgets: found.key ?? {},
    resets: {
      requestsMs: requests.requestsResetMs,
      tokensMs: tokens.tokensResetMs,
      budgetsS: {
        day: secondsToEndOf("day", day, now),
        week: secondsToEndOf("week", day, now),
        month: secondsToEndOf("month", day, now),
        total: secondsToEndOf("total", day, now)
      }
    }
  }
  if (found.tenant !== undefined) headroom.tenantBudgets = found.tenant
  if (found.user !== undefined) headroom.userBudgets = found.user
  if (found.model !== undefined) headroom.modelBudgets = found.model
  if (ofModel) headroom.ofModel = true
  return headroom
}

const isEmpty = (record: object): boolean => {
  for (const _ in record) return false
  return true
}

/** The counters of `day` whose flag is set; flags in the order of the counters. */
export const missingOf = (
  claims: Claims,
  { counters: names, start }: Day,
  flags: ReadonlyArray<boolean>
): Missing => {
  const some = (scope: BudgetScope): Counters => {
    const found: { -readonly [P in Period]?: CounterName } = {}
    shapeOf(claims).budgets.forEach((name, i) => {
      if (name.scope === scope && flags[i] === true) found[name.period] = names[name.period]
    })
    return found
  }
  const [tenantCounters, userCounters, modelCounters] = [some("tenant"), some("user"), some("model")]
  return new Missing({
    instant: start,
    counters: some("key"),
    ...(isEmpty(tenantCounters) ? {} : { tenantCounters }),
    ...(isEmpty(userCounters) ? {} : { userCounters }),
    ...(isEmpty(modelCounters) ? {} : { modelCounters })
  })
}

/** The counters that a request of `day` is charged to, as if the Meter knew none of them. */
export const countersOf = (claims: Claims, day: Day): Missing =>
  missingOf(
    claims,
    day,
    budgetsOf(claims).map((budget) => budget !== undefined)
  )

/** What is left once `reservation` is given back, of what was left beside it. */
export const headroomWithout = (headroom: Headroom, { available, held }: Reservation): Headroom => {
  const more = ({ limit, remaining }: Remaining, released: number): Remaining => ({
    limit,
    remaining: Math.min(limit, remaining + released)
  })
  /** Of a claim that has nothing left, no more is known to be released than was available. */
  const tokens = (left: Remaining) => more(left, left.remaining > 0 ? held : Math.min(held, available))
  const released = (all: Headroom["budgets"]): Headroom["budgets"] => {
    const budgets: PeriodsLeft = {}
    for (const period of periods) {
      const left = all[period]
      if (left !== undefined) budgets[period] = tokens(left)
    }
    return budgets
  }
  const { modelBudgets, tenantBudgets, userBudgets } = headroom
  // The store was not asked for the resets without it. It is no later than those with it.
  return {
    ...headroom,
    requests: more(headroom.requests, 1),
    tokens: tokens(headroom.tokens),
    budgets: released(headroom.budgets),
    ...(tenantBudgets === undefined ? {} : { tenantBudgets: released(tenantBudgets) }),
    ...(userBudgets === undefined ? {} : { userBudgets: released(userBudgets) }),
    ...(modelBudgets === undefined ? {} : { modelBudgets: released(modelBudgets) })
  }
}

/**
 * A refusal. Windows, slots and budgets that are only held give `waitMs`. That of a spent budget is 0: its wait is the
 * calendar's: until the period of `day` ends, from the store's time `now`.
 */
export const refusal = (
  { by, scope }: { readonly by: ClaimName; readonly scope: BudgetScope },
  limit: number,
  waitMs: number,
  { day, now }: { readonly day: Day; readonly now: number },
  headroom: Headroom
): Refused => {
  const isSpent = isPeriod(by) && waitMs === 0
  const retryAfterS = Math.max(1, isSpent ? secondsToEndOf(by, day, now) : Math.ceil(waitMs / 1000))
  return new Refused({ by, scope, limit, isSpent, retryAfterS, headroom })
}
