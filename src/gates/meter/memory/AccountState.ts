/** What an account has in memory beside its totals: windows, and what its running requests occupy. */
import type { Reservation } from "../../../domain/Reservation.ts"
import { whole } from "../verdicts.ts"
import type { Counter } from "./Totals.ts"
import { type Noted, Window } from "./Window.ts"

export interface Request {
  readonly admittedAt: number
  readonly available: number
  readonly slot: boolean
  /** its place in the window of requests; undefined when the store lost it meanwhile */
  readonly counted: Noted | undefined
  held: number
  used: number
  /** where its used tokens are in the window of tokens */
  noted: ReadonlyArray<Noted>
  /** the counters that were charged with exactly what is held */
  readonly charged: Set<Counter>
}

/** A request that the store has lost, from what its owner knows. */
export const revive = ({ admittedAt, available, held, slot }: Reservation): Request => ({
  admittedAt,
  available,
  slot,
  counted: undefined,
  held: whole(held),
  used: 0,
  noted: [],
  charged: new Set()
})

/** What a running request occupies. */
interface Lease {
  /** 0 once it has ended: then only the hold is left */
  readonly until: number
  readonly slot: boolean
  /** tokens held and not yet used */
  readonly tokens: number
}

export class AccountState {
  readonly requests = new Window()
  readonly tokens = new Window()
  readonly leases = new Map<string, Lease>()
  /** another number after every change */
  mark = 0
  touchedAt = 0
  /** until when it counts among the users of its key */
  keptUntil = 0

  /** Slots that are taken. */
  get slots(): number {
    return [...this.leases.values()].filter(({ slot }) => slot).length
  }

  /** Tokens held and not yet used. */
  get held(): number {
    return [...this.leases.values()].reduce((sum, { tokens }) => sum + tokens, 0)
  }

  /** ids of requests whose lease has ended and that still hold tokens */
  get lapsed(): ReadonlyArray<string> {
    return [...this.leases].flatMap(([id, { until }]) => (until === 0 ? [id] : []))
  }

  /** Moves the windows on, and ends leases. No lease is longer than `leaseMs`: the clock may have gone back. */
  moveTo(now: number, leaseMs: number): void {
    if (now < this.touchedAt) this.keptUntil = 0
    this.touchedAt = now
    this.requests.moveTo(now)
    this.tokens.moveTo(now)
    for (const [id, { slot, tokens, until }] of this.leases) {
      if (until > now) this.leases.set(id, { until: Math.min(until, now + leaseMs), slot, tokens })
      else if (tokens > 0) this.leases.set(id, { until: 0, slot: false, tokens })
      else this.leases.delete(id)
    }
  }

  /** Occupies what a request holds, until `until`. */
  occupy(id: string, { held, slot, used }: Request, until: number): void {
    if (slot || held > used) this.leases.set(id, { until, slot, tokens: held - used })
  }

  /** Gives back what a request that is over holds beyond its lease: it was ended for one account only. */
  releaseLapsed(id: string): void {
    if (this.leases.get(id)?.until === 0) this.leases.delete(id)
  }
}

/**
 * Sets the tokens that a request has in the windows of its accounts to `used` in all. Too much is taken back where it was noted
 * first.
 */
export const note = (accounts: ReadonlyArray<AccountState>, request: Request, used: number): void => {
  const excess = request.used - used
  request.used = used
  const before = request.noted
  const noted = accounts.map(({ tokens }) => {
    if (excess < 0) return [...before, tokens.add(-excess)]
    let left = excess
    return before.map(({ amount, half }) => {
      const taken = tokens.take({ half, amount: Math.min(left, amount) })
      left -= taken
      return { half, amount: amount - taken }
    })
  })
  request.noted = noted[0] ?? before
}
