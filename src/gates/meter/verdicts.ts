/** What both twins answer alike: bucket names, headroom, refusals. */
import { counterNamesAt, dayMs, secondsFrom, secondsToEndOf } from "../../domain/Calendar.ts"
import {
  type BudgetName,
  budgetNames,
  type BudgetScope,
  type Headroom,
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

/** The budget of each of `budgetNames`; undefined for one that is not claimed. */
export const budgetsOf = (claims: Claims): ReadonlyArray<number | undefined> =>
  budgetNames.map((name) => budgetOf(claims, name))

const budgetOf = (claims: Claims, { period, scope }: BudgetName): number | undefined => {
  if (scope === "user") return claims.user?.budgets[period]
  return (scope === "key" ? claims.budgets : claims.tenantBudgets)?.[period]
}

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

/** `instant` (epoch ms) is in the periods of the budgets: those of the request's admission. */
export const headroomOf = (claims: Claims, instant: number, left: Left): Headroom => {
  const found: { readonly [S in BudgetScope]: PeriodsLeft } = { key: {}, tenant: {}, user: {} }
  for (let i = 0; i < budgetNames.length; i += 1) {
    const name = budgetNames[i]
    const remaining = left.budgets[i]
    if (name === undefined || remaining === undefined || remaining < 0) continue
    const limit = budgetOf(claims, name)
    if (limit === undefined) continue
    found[name.scope][name.period] = { limit, remaining }
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
        day: secondsFrom(left.now, "day", instant),
        month: secondsFrom(left.now, "month", instant),
        total: secondsFrom(left.now, "total", instant)
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

/** The counters of `instant` (epoch ms) whose flag is set; flags in the order of `budgetNames`. */
export const missingOf = (instant: number, flags: ReadonlyArray<boolean>): Missing => {
  const names = counterNamesAt(instant)
  const some = (scope: BudgetScope): Counters => {
    const found: { -readonly [P in Period]?: CounterName } = {}
    budgetNames.forEach((name, i) => {
      if (name.scope === scope && flags[i] === true) found[name.period] = names[name.period]
    })
    return found
  }
  const [tenantCounters, userCounters] = [some("tenant"), some("user")]
  return new Missing({
    counters: some("key"),
    ...(isEmpty(tenantCounters) ? {} : { tenantCounters }),
    ...(isEmpty(userCounters) ? {} : { userCounters })
  })
}

/** The counters that `reservation` is charged to, as if the Meter knew none of them. */
export const countersOf = ({ admittedAt, claims }: Reservation): Missing =>
  missingOf(
    admittedAt,
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
 * calendar's, from the store's time `now`.
 */
export const refusal = (
  { by, scope }: { readonly by: ClaimName; readonly scope: BudgetScope },
  limit: number,
  waitMs: number,
  now: number,
  headroom: Headroom
): Refused => {
  const isSpent = (by === "day" || by === "month" || by === "total") && waitMs === 0
  const retryAfterS = isSpent ? secondsToEndOf(by, now) : Math.max(1, Math.ceil(waitMs / 1000))
  return new Refused({ by, scope, limit, isSpent, retryAfterS, headroom })
}
