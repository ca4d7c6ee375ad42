/**
 * Guesses whether the Meter will admit a request, so that its intent can be written while the Meter decides.
 *
 * A wrong guess costs two rows in Postgres, an intent that is deleted and the refusal, instead of one. So a request is
 * expected to be admitted only if the last request of its account was, if that left enough for it and for those that were
 * expected since, and if these are fewer than the slots of the account. After a refusal, or without an answer of the Meter,
 * no admission is expected for the account during `doubtMs`. So a client that sends more than it may costs at most one
 * burst of such rows in that time.
 *
 * A counter that the store does not have is loaded from the ledger, which has the hold of the prepared intent already. So no
 * admission is expected where a counter is likely to be missing: on a new day, with other budgets, and after a loss.
 *
 * *Gotchas* The expected time of admission may be wrong by the time that the store takes to answer. An intent belongs to the
 * day of its admission, so no admission is expected around midnight.
 */
import { dayNumber } from "../../domain/Calendar.ts"
import { type Headroom, periods } from "../../domain/Limits.ts"
import type { Claims, Reservation } from "../../domain/Reservation.ts"
import { Dictionary } from "../../infra/v8/Dictionary.ts"
import type { Reserved, ReserveRequest } from "../meter/Meter.ts"

/** How long no admission is expected for an account that was refused. */
const doubtMs = 10_000
/** More than a store takes to decide. */
const midnightMs = 5000
/** Accounts that are remembered. When there are more, all are forgotten. */
const mostAccounts = 10_000

/** What this process knows of an account since its last admission. */
class KnownAccount {
  /** the day of that admission */
  day = Number.NaN
  /** its budgets then (`budgetedPeriods`) */
  budgeted = Number.NaN
  /** losses of the store before it */
  losses = Number.NaN
  requests = 0
  tokens = 0
  /** how many more requests with a slot are expected before its next admission; it may have all slots then */
  slots = 0
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

/** The periods with a budget, of the key and of its tenant, as bits. */
const budgetedPeriods = ({ budgets, tenantBudgets }: Claims): number => {
  let bits = 0
  for (const period of periods) {
    bits =
      bits * 4 + (budgets[period] === undefined ? 0 : 1) + (tenantBudgets?.[period] === undefined ? 0 : 2)
  }
  return bits
}

const isNearMidnight = (epochMs: number): boolean =>
  dayNumber(epochMs - midnightMs) !== dayNumber(epochMs + midnightMs)

export class ExpectedAdmissions {
  /** by account; the entries change with each request, not the table */
  #accounts = new Dictionary<KnownAccount>()
  /** the store's clock (epoch ms) minus the monotonic clock of this process */
  #storeClock = Number.NaN
  /** how often the store missed counters */
  #losses = 0

  /** Records an admission at `now`, in monotonic ms. */
  admitted({ headroom, reservation }: Reserved, now: number): void {
    const { key } = reservation.claims.account
    let known = this.#accounts.get(key)
    if (known === undefined) {
      if (this.#accounts.size >= mostAccounts) this.#accounts = new Dictionary()
      known = new KnownAccount()
      this.#accounts.set(key, known)
    }
    known.day = dayNumber(reservation.admittedAt)
    known.budgeted = budgetedPeriods(reservation.claims)
    known.losses = this.#losses
    known.requests = headroom.requests.remaining
    known.tokens = tokensLeft(headroom)
    known.slots = reservation.claims.limits.concurrent
    this.#storeClock = reservation.admittedAt - now
  }

  /** Records at `now` that a request was not admitted. */
  notAdmitted({ account }: Claims, now: number): void {
    const known = this.#accounts.get(account.key)
    if (known !== undefined) known.doubtedUntil = now + doubtMs
  }

  /** Records that the store misses counters: no admission is expected for an account before its next one. */
  lost(): void {
    this.#losses += 1
  }

  /** The reservation that the request is expected to get; `undefined` when it may be refused. */
  expect(claims: Claims, { id, slot, tokens }: ReserveRequest, now: number): Reservation | undefined {
    const known = this.#accounts.get(claims.account.key)
    if (known === undefined || now < known.doubtedUntil) return undefined
    const admittedAt = Math.round(this.#storeClock + now)
    if (known.requests < 1 || known.tokens < tokens) return undefined
    if (slot && known.slots < 1) return undefined
    if (known.losses !== this.#losses || known.budgeted !== budgetedPeriods(claims)) return undefined
    if (known.day !== dayNumber(admittedAt) || isNearMidnight(admittedAt)) return undefined
    const available = known.tokens
    known.requests -= 1
    known.tokens -= tokens
    if (slot) known.slots -= 1
    return { id, claims, held: tokens, available, admittedAt, slot }
  }
}
