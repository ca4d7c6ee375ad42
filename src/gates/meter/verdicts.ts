/** What both twins answer alike: bucket names, headroom, refusals. */
import { bucketsAt, secondsFrom, secondsToEndOf } from "../../domain/Calendar.ts"
import { type Headroom, type Period, periods, type Remaining } from "../../domain/Limits.ts"
import { type ClaimName, Missing, Refused, type ReserveRequest } from "./Meter.ts"
import type { Account, Bucket, Claims, Reservation } from "../../domain/Reservation.ts"

/** In the order in which they are checked. */
export const claimNames = [
  "requests",
  "tokens",
  "concurrency",
  ...periods
] as const satisfies ReadonlyArray<ClaimName>

const dayMs = 86_400_000

/**
 * How long a total is kept, in ms: well past its period, so that it is there when the period's last request
 * settles. A `total` dropped by then was idle, and comes back from the ledger.
 */
export const lifeOf = (bucket: Bucket): number => (/^\d{4}-\d{2}-\d{2}$/.test(bucket) ? 4 : 40) * dayMs

/** Counts are whole and not negative, whatever a caller computed. */
export const whole = (tokens: number): number =>
  tokens > 0 ? Math.min(Math.ceil(tokens), Number.MAX_SAFE_INTEGER) : 0

/** What is held of an ask, however little remains. */
export const leastOf = ({ least = 0, tokens }: ReserveRequest): number =>
  Math.min(whole(least), whole(tokens))

/** What a store says is left of its counters. */
export interface Left {
  readonly requests: number
  readonly tokens: number
  /** in the order of `periods`; below 0: not claimed, or not known */
  readonly budgets: ReadonlyArray<number>
  /** the store's time, epoch ms */
  readonly now: number
  readonly requestsResetMs: number
  readonly tokensResetMs: number
}

/** `instant` (epoch ms) is in the periods of the budgets: those of the request's admission. */
export const headroomOf = (claims: Claims, instant: number, left: Left): Headroom => {
  const budgets: { -readonly [P in Period]?: Remaining } = {}
  periods.forEach((period, i) => {
    const [limit, remaining] = [claims.budgets[period], left.budgets[i]]
    if (limit !== undefined && remaining !== undefined && remaining >= 0)
      budgets[period] = { limit, remaining }
  })
  return {
    requests: { limit: claims.limits.rpm, remaining: left.requests },
    tokens: { limit: claims.limits.tpm, remaining: left.tokens },
    budgets,
    resets: {
      requestsMs: left.requestsResetMs,
      tokensMs: left.tokensResetMs,
      budgetsS: {
        day: secondsFrom(left.now, "day", instant),
        month: secondsFrom(left.now, "month", instant),
        total: secondsFrom(left.now, "total", instant)
      }
    }
  }
}

/** The names in `all` whose flag is set. */
export const marked = (
  all: { readonly [P in Period]: Bucket },
  flags: ReadonlyArray<boolean>
): Reservation["buckets"] => {
  const some: { -readonly [P in Period]?: Bucket } = {}
  periods.forEach((period, i) => {
    if (flags[i] === true) some[period] = all[period]
  })
  return some
}

/** The totals that `reservation` is charged to, as if the Meter knew none of them. */
export const totalsOf = ({ admittedAt, claims }: Reservation): Missing => {
  const claimed = periods.map((period) => claims.budgets[period] !== undefined)
  return new Missing({ buckets: marked(bucketsAt(admittedAt), claimed) })
}

/** What is left once `reservation` is given back, of what was left beside it. */
export const headroomWithout = (headroom: Headroom, { available, held }: Reservation): Headroom => {
  const more = ({ limit, remaining }: Remaining, released: number): Remaining => ({
    limit,
    remaining: Math.min(limit, remaining + released)
  })
  /** Of a claim that has nothing left, no more is known to be released than was available. */
  const tokens = (left: Remaining) => more(left, left.remaining > 0 ? held : Math.min(held, available))
  const budgets: { -readonly [P in Period]?: Remaining } = {}
  for (const period of periods) {
    const left = headroom.budgets[period]
    if (left !== undefined) budgets[period] = tokens(left)
  }
  // The store was not asked for the resets without it. It is no later than those with it.
  return { ...headroom, requests: more(headroom.requests, 1), tokens: tokens(headroom.tokens), budgets }
}

/** `waitMs` speaks for windows and slots; a budget's wait is its calendar's (store time `now`). */
export const refusal = (
  by: ClaimName,
  limit: number,
  waitMs: number,
  now: number,
  headroom: Headroom
): Refused => {
  const waits =
    by === "requests" || by === "tokens" || by === "concurrency"
      ? Math.max(1, Math.ceil(waitMs / 1000))
      : secondsToEndOf(by, now)
  return new Refused({ by, limit, retryAfterS: waits, headroom })
}

/** Braces place an account in a cluster; one inside a name would move the tag. */
export const tagOf = ({ group }: Account): string =>
  `{${braces.test(group) ? group.replaceAll(/[{}]/g, "_") : group}}`

const braces = /[{}]/
