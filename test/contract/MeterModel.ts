/**
 * A Meter so plain that it can be believed: it remembers every event and adds up. Nothing is ever forgotten, no
 * store is ever lost, and totals are loaded with 0 at the start of their period.
 */
import { dayOf, monthOf, secondsFrom, secondsToEndOf } from "../../src/domain/Calendar.ts"
import {
  budgetNames,
  type BudgetScope,
  type Headroom,
  type Period,
  periods
} from "../../src/domain/Limits.ts"
import type { ReserveRequest, ClaimName, Renewal } from "../../src/gates/meter/Meter.ts"
import type { Claims, Reservation } from "../../src/domain/Reservation.ts"

interface Event {
  readonly at: number
  amount: number
}

interface Request {
  readonly at: number
  readonly slot: boolean
  readonly available: number
  held: number
  used: number
  leaseUntil: number
  over: boolean
  /** until when its slot is kept after its end; 0 when it is not */
  slotUntil: number
  /** tokens it used, when they were noted */
  readonly tokens: Array<Event>
}

export type ModelVerdict =
  | { readonly _tag: "Reserved"; readonly reservation: Reservation; readonly headroom: Headroom }
  | {
      readonly _tag: "Refused"
      readonly by: ClaimName
      readonly scope: BudgetScope
      readonly limit: number
      readonly retryAfterS: number
      readonly headroom: Headroom
    }
  | { readonly _tag: "Over" }

/** Adds up what came in 60 seconds, by half seconds: all of one leaves 60 seconds after the last of it came. */
class Minute {
  /** by number: when the last of it came, and how much it is */
  readonly #halves = new Map<number, { at: number; amount: number }>()

  #live(now: number) {
    return [...this.#halves.values()].filter(({ amount, at }) => amount > 0 && at > now - 60_000)
  }

  add(at: number, amount: number): void {
    const half = Math.floor(at / 500)
    const there = this.#halves.get(half)
    this.#halves.set(half, { at, amount: amount + (there?.amount ?? 0) })
  }

  /** Takes back what was added at `at`, if it has not left. */
  take(at: number, amount: number, now: number): number {
    const there = this.#halves.get(Math.floor(at / 500))
    if (there === undefined || there.at <= now - 60_000) return 0
    const taken = Math.min(amount, there.amount)
    there.amount -= taken
    if (there.amount === 0) this.#halves.delete(Math.floor(at / 500))
    return taken
  }

  sum(now: number): number {
    return this.#live(now).reduce((sum, { amount }) => sum + amount, 0)
  }

  emptyIn(now: number): number {
    return Math.max(0, ...this.#live(now).map(({ at }) => at + 60_000 - now))
  }

  /** Whole seconds until at most `room` is left. */
  waitS(room: number, now: number): number {
    if (this.sum(now) <= room) return 1
    const ends = this.#live(now).map(({ at }) => at + 60_000)
    const end = ends.toSorted((a, b) => a - b).find((end) => this.sum(end) <= room) ?? now + 60_000
    return Math.max(1, Math.ceil((end - now) / 1000))
  }
}

const bucketOf: { readonly [P in Period]: (at: number) => string } = {
  day: dayOf,
  month: monthOf,
  total: () => "total"
}

export class MeterModel {
  readonly #requests = new Map<string, Request>()
  readonly #requestMinute = new Minute()
  readonly #tokenMinute = new Minute()
  readonly #leaseMs: number
  /** ids that were over before they began */
  readonly #never = new Set<string>()

  /** all accounts of the group */
  readonly #group: Array<MeterModel>

  /** `group`: the accounts that it shares budgets with; it joins them */
  constructor(leaseS: number, group: Array<MeterModel> = []) {
    this.#leaseMs = leaseS * 1000
    this.#group = group
    group.push(this)
  }

  get #all(): Array<Request> {
    return [...this.#requests.values()]
  }

  #live(now: number): Array<Request> {
    return this.#all.filter((request) => !request.over && request.leaseUntil > now)
  }

  #outstanding(): number {
    return this.#all
      .filter((request) => !request.over)
      .reduce((sum, request) => sum + request.held - request.used, 0)
  }

  #spent(period: Period, of: number): number {
    const bucket = bucketOf[period](of)
    return this.#all
      .filter((request) => bucketOf[period](request.at) === bucket)
      .reduce((sum, request) => sum + (request.over ? request.used : request.held), 0)
  }

  #spentBy(scope: BudgetScope, period: Period, of: number): number {
    if (scope === "key") return this.#spent(period, of)
    return this.#group.reduce((sum, account) => sum + account.#spent(period, of), 0)
  }

  /** What is left of each budget, which may be less than nothing. */
  #remainders(claims: Claims, of: number) {
    return budgetNames.flatMap(({ period, scope }) => {
      const budget = (scope === "key" ? claims.budgets : claims.tenantBudgets)?.[period]
      return budget === undefined
        ? []
        : [{ period, scope, budget, left: budget - this.#spentBy(scope, period, of) }]
    })
  }

  headroom(claims: Claims, of: number, now: number): Headroom {
    const { limits } = claims
    const left = (scope: BudgetScope) =>
      Object.fromEntries(
        this.#remainders(claims, of)
          .filter((budget) => budget.scope === scope)
          .map(({ budget, left, period }) => [period, { limit: budget, remaining: Math.max(0, left) }])
      )
    const tenantBudgets = left("tenant")
    return {
      requests: { limit: limits.rpm, remaining: Math.max(0, limits.rpm - this.#requestMinute.sum(now)) },
      tokens: {
        limit: limits.tpm,
        remaining: Math.max(0, limits.tpm - this.#tokenMinute.sum(now) - this.#outstanding())
      },
      budgets: left("key"),
      ...(Object.keys(tenantBudgets).length === 0 ? {} : { tenantBudgets }),
      resets: {
        requestsMs: this.#requestMinute.emptyIn(now),
        tokensMs: this.#outstanding() > 0 ? 60_000 : this.#tokenMinute.emptyIn(now),
        budgetsS: {
          day: secondsFrom(now, "day", of),
          month: secondsFrom(now, "month", of),
          total: secondsFrom(now, "total", of)
        }
      }
    }
  }

  reserve(claims: Claims, ask: ReserveRequest, now: number): ModelVerdict {
    const known = this.#requests.get(ask.id)
    if (this.#never.has(ask.id) || known?.over === true) return { _tag: "Over" }
    if (known !== undefined) return this.#reserved(claims, ask.id, known, now)
    const { limits } = claims
    const refused = (
      by: ClaimName,
      limit: number,
      retryAfterS: number,
      scope: BudgetScope = "key"
    ): ModelVerdict => ({
      _tag: "Refused",
      by,
      scope,
      limit,
      retryAfterS,
      headroom: this.headroom(claims, now, now)
    })
    if (this.#requestMinute.sum(now) >= limits.rpm) {
      return refused("requests", limits.rpm, this.#requestMinute.waitS(limits.rpm - 1, now))
    }
    const outstanding = this.#outstanding()
    const room = limits.tpm - this.#tokenMinute.sum(now) - outstanding
    if (ask.tokens > 0 && room <= 0) {
      const counted = outstanding < limits.tpm ? outstanding : 0
      return refused("tokens", limits.tpm, this.#tokenMinute.waitS(limits.tpm - 1 - counted, now))
    }
    const kept = this.#all.filter(({ slotUntil }) => slotUntil > now).length
    if (ask.slot && kept + this.#live(now).filter(({ slot }) => slot).length >= limits.concurrent) {
      return refused("concurrency", limits.concurrent, 1)
    }
    const remainders = this.#remainders(claims, now)
    const spent = remainders.filter(({ left }) => left <= 0)
    const last = periods.findLast((period) => spent.some((budget) => budget.period === period))
    const decisive = spent.find(({ period }) => period === last)
    if (ask.tokens > 0 && decisive !== undefined) {
      const { budget, period, scope } = decisive
      return refused(period, budget, secondsToEndOf(period, now), scope)
    }
    const available = Math.max(0, Math.min(room, ...remainders.map(({ left }) => left)))
    const held = Math.max(Math.min(ask.tokens, available), Math.min(ask.least ?? 0, ask.tokens))
    const request: Request = {
      at: now,
      slot: ask.slot,
      available,
      held,
      used: 0,
      leaseUntil: now + this.#leaseMs,
      over: false,
      slotUntil: 0,
      tokens: []
    }
    this.#requests.set(ask.id, request)
    this.#requestMinute.add(now, 1)
    return this.#reserved(claims, ask.id, request, now)
  }

  #reserved(claims: Claims, id: string, request: Request, now: number): ModelVerdict {
    const { held, available, at, slot } = request
    return {
      _tag: "Reserved",
      reservation: { id, claims, held, available, admittedAt: at, slot },
      headroom: this.headroom(claims, at, now)
    }
  }

  /** Notes that `request` has used `used` in all; too much is taken back from the oldest that can be. */
  #note(request: Request, used: number, now: number): void {
    let excess = request.used - used
    if (excess < 0) {
      request.tokens.push({ at: now, amount: -excess })
      this.#tokenMinute.add(now, -excess)
    }
    for (const event of request.tokens) {
      if (excess <= 0) break
      const taken = this.#tokenMinute.take(event.at, Math.min(excess, event.amount), now)
      event.amount -= taken
      excess -= taken
    }
    request.used = used
  }

  renew(reservation: Reservation, used: number, want: number, now: number): Renewal {
    const request = this.#requests.get(reservation.id)
    if (request === undefined || request.over) return { held: 0, exhausted: true }
    this.#note(request, Math.max(used, request.used), now)
    request.held = Math.max(request.held, request.used)
    request.leaseUntil = now + this.#leaseMs
    const { limits } = reservation.claims
    const room = Math.min(
      limits.tpm - this.#tokenMinute.sum(now) - this.#outstanding(),
      ...this.#remainders(reservation.claims, request.at).map(({ left }) => left)
    )
    const more = Math.min(Math.max(0, want - request.held), Math.max(0, room))
    request.held += more
    return { held: request.held, exhausted: request.held < want }
  }

  settle(reservation: Reservation, used: number, keepSlot: boolean, now: number): Headroom {
    const request = this.#requests.get(reservation.id)
    if (request !== undefined && !request.over) {
      this.#note(request, used, now)
      request.over = true
      if (keepSlot && request.slot) request.slotUntil = now + this.#leaseMs
    }
    return this.headroom(reservation.claims, reservation.admittedAt, now)
  }

  renewSlot(id: string, now: number): void {
    const request = this.#requests.get(id)
    if (request !== undefined && request.slotUntil > now) request.slotUntil = now + this.#leaseMs
  }

  freeSlot(id: string): void {
    const request = this.#requests.get(id)
    if (request !== undefined) request.slotUntil = 0
  }

  cancel(id: string, now: number): void {
    const request = this.#requests.get(id)
    if (request === undefined) this.#never.add(id)
    if (request === undefined || request.over) return
    this.#note(request, 0, now)
    request.over = true
    this.#requestMinute.take(request.at, 1, now)
  }
}
