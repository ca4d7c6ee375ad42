/**
 * Guesses whether the Meter will admit a request, so that its intent can be written while the Meter decides.
 *
 * A wrong guess costs two rows in Postgres, an intent that is deleted and the refusal, instead of one. So a request is
 * expected to be admitted only if the last request of its account was, and if that left enough for it and for those
 * that were expected since. After a refusal, or without an answer of the Meter, nothing is expected of the account for
 * `doubtMs`. So a client that sends more than it may costs at most one burst of such rows in that time.
 *
 * *Gotchas* The expected time of admission may be wrong by the time that the store takes to answer. An intent belongs to the
 * day of its admission, so nothing is expected around midnight.
 */
import { dayNumber } from "../../domain/Calendar.ts"
import { type Headroom, periods } from "../../domain/Limits.ts"
import type { Claims, Reservation } from "../../domain/Reservation.ts"
import { Dictionary } from "../../infra/v8/Dictionary.ts"
import type { Reserved, ReserveRequest } from "../meter/Meter.ts"

/** How long nothing is expected of an account that was refused. */
const doubtMs = 10_000
/** More than a store takes to decide. */
const midnightMs = 5000
/** Accounts that are remembered. When there are more, all are forgotten. */
const mostAccounts = 10_000

/** What is left of an account, as far as this process knows. */
class Outlook {
  /** the day of the last admission: on another day the store has other counters, which it may not have loaded yet */
  day = Number.NaN
  requests = 0
  tokens = 0
  doubtedUntil = Number.NEGATIVE_INFINITY
}

/** The smallest remainder of tokens. */
const tokensLeft = ({ budgets, tenantBudgets, tokens }: Headroom): number => {
  let least = tokens.remaining
  for (const period of periods) {
    least = Math.min(least, budgets[period]?.remaining ?? least, tenantBudgets?.[period]?.remaining ?? least)
  }
  return least
}

const isNearMidnight = (epochMs: number): boolean =>
  dayNumber(epochMs - midnightMs) !== dayNumber(epochMs + midnightMs)

export class ExpectedAdmissions {
  /** by account; the entries change with each request, not the table */
  #accounts = new Dictionary<Outlook>()
  /** the store's clock (epoch ms) minus the monotonic clock of this process */
  #storeClock = Number.NaN

  /** Records an admission at `now`, in monotonic ms. */
  admitted({ headroom, reservation }: Reserved, now: number): void {
    const { key } = reservation.claims.account
    let outlook = this.#accounts.get(key)
    if (outlook === undefined) {
      if (this.#accounts.size >= mostAccounts) this.#accounts = new Dictionary()
      outlook = new Outlook()
      this.#accounts.set(key, outlook)
    }
    outlook.day = dayNumber(reservation.admittedAt)
    outlook.requests = headroom.requests.remaining
    outlook.tokens = tokensLeft(headroom)
    this.#storeClock = reservation.admittedAt - now
  }

  /** Records at `now` that a request was not admitted. */
  notAdmitted({ account }: Claims, now: number): void {
    const outlook = this.#accounts.get(account.key)
    if (outlook !== undefined) outlook.doubtedUntil = now + doubtMs
  }

  /** The store has lost counters: nothing is expected until it has admitted requests again. */
  forget(): void {
    this.#accounts = new Dictionary()
  }

  /** The reservation that the request is expected to get; `undefined` when it may be refused. */
  expect(claims: Claims, { id, slot, tokens }: ReserveRequest, now: number): Reservation | undefined {
    const outlook = this.#accounts.get(claims.account.key)
    if (outlook === undefined || now < outlook.doubtedUntil) return undefined
    const admittedAt = Math.round(this.#storeClock + now)
    if (outlook.requests < 1 || outlook.tokens < tokens) return undefined
    if (outlook.day !== dayNumber(admittedAt) || isNearMidnight(admittedAt)) return undefined
    const available = outlook.tokens
    outlook.requests -= 1
    outlook.tokens -= tokens
    return { id, claims, held: tokens, available, admittedAt, slot }
  }
}
