/** What both twins answer alike: bucket names, headroom, refusals. */
import { type Day, dayMs, secondsToEndOf } from "../../domain/Calendar.ts"
import {
  budgetNames,
  type Budgets,
  type BudgetScope,
  type Headroom,
  isPeriod,
  type Period,
  periods,
  type Remaining
} from "../../domain/Limits.ts"
import { type ClaimName, Missing, Refused, type ReserveRequest } from "./Meter.ts"
import type { Claims, CounterName, Counters, Reservation } from "../../domain/Reservation.ts"

const limitsOf = (scope: BudgetScope) =>
  (["requests", "tokens", "concurrency"] as const).map((by) => ({ by, scope }))

/** The claims by number, as the scripts name them in a refusal. */
export const claimNames: ReadonlyArray<{ readonly by: ClaimName; readonly scope: BudgetScope }> = [
  ...limitsOf("key"),
  ...budgetNames.map(({ period, scope }) => ({ by: period, scope })),
  ...limitsOf("user"),
  { by: "users", scope: "key" }
]

const ofScope = (claims: Claims, scope: BudgetScope): Budgets | undefined => {
  if (scope === "user") return claims.user?.budgets
  return scope === "key" ? claims.budgets : claims.tenantBudgets
}

/** The budget of each of `budgetNames`; undefined for one that is not claimed. An extra budget claims the counter of all time. */
export const budgetsOf = (claims: Claims): ReadonlyArray<number | undefined> =>
  budgetNames.map(({ period, scope }) => {
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
  readonly windows: WindowsLeft
  /** of the account of the user */
  readonly userWindows: WindowsLeft | undefined
  /** in the order of `budgetNames`; below 0: not claimed, or not known */
  readonly budgets: ReadonlyArray<number>
  /** the store's time, epoch ms */
  readonly now: number
}

type PeriodsLeft = { -readonly [P in Period]?: Remaining }

/** `day`: in the periods of the budgets, that of the request's admission. With an extra budget more may be left than the limit. */
export const headroomOf = (claims: Claims, day: Day, left: Left): Headroom => {
  const found: { readonly [S in BudgetScope]: PeriodsLeft } = { key: {}, tenant: {}, user: {} }
  for (let i = 0; i < budgetNames.length; i += 1) {
    const name = budgetNames[i]
    const remaining = left.budgets[i]
    if (name === undefined || remaining === undefined || remaining < 0) continue
    const limit = ofScope(claims, name.scope)?.[name.period]
    if (limit === undefined) continue
    found[name.scope][name.period] = { limit: Math.max(limit, remaining), remaining }
  }
  const { user, limits } = claims
  const { userWindows: ofUser, windows: ofKey } = left
  const requests = ofUser !== undefined && ofUser.requests < ofKey.requests ? ofUser : ofKey
  const tokens = ofUser !== undefined && ofUser.tokens < ofKey.tokens ? ofUser : ofKey
  const headroom: { -readonly [P in keyof Headroom]: Headroom[P] } = {
    requests: {
      limit: (requests === ofKey ? undefined : user?.limits.rpm) ?? limits.rpm,
      remaining: requests.requests
    },
    tokens: {
      limit: (tokens === ofKey ? undefined : user?.limits.tpm) ?? limits.tpm,
      remaining: tokens.tokens
    },
    budgets: found.key,
    resets: {
      requestsMs: requests.requestsResetMs,
      tokensMs: tokens.tokensResetMs,
      budgetsS: {
        day: secondsToEndOf("day", day, left.now),
        week: secondsToEndOf("week", day, left.now),
        month: secondsToEndOf("month", day, left.now),
        total: secondsToEndOf("total", day, left.now)
      }
    }
  }
  if (!isEmpty(found.tenant)) headroom.tenantBudgets = found.tenant
  if (!isEmpty(found.user)) headroom.userBudgets = found.user
  return headroom
}

const isEmpty = (record: object): boolean => {
  for (const _ in record) return false
  return true
}

/** The counters of `day` whose flag is set; flags in the order of `budgetNames`. */
export const missingOf = ({ counters: names, start }: Day, flags: ReadonlyArray<boolean>): Missing => {
  const some = (scope: BudgetScope): Counters => {
    const found: { -readonly [P in Period]?: CounterName } = {}
    budgetNames.forEach((name, i) => {
      if (name.scope === scope && flags[i] === true) found[name.period] = names[name.period]
    })
    return found
  }
  const [tenantCounters, userCounters] = [some("tenant"), some("user")]
  return new Missing({
    instant: start,
    counters: some("key"),
    ...(isEmpty(tenantCounters) ? {} : { tenantCounters }),
    ...(isEmpty(userCounters) ? {} : { userCounters })
  })
}

/** The counters that a request of `day` is charged to, as if the Meter knew none of them. */
export const countersOf = (claims: Claims, day: Day): Missing =>
  missingOf(
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
  const { tenantBudgets, userBudgets } = headroom
  // The store was not asked for the resets without it. It is no later than those with it.
  return {
    ...headroom,
    requests: more(headroom.requests, 1),
    tokens: tokens(headroom.tokens),
    budgets: released(headroom.budgets),
    ...(tenantBudgets === undefined ? {} : { tenantBudgets: released(tenantBudgets) }),
    ...(userBudgets === undefined ? {} : { userBudgets: released(userBudgets) })
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
