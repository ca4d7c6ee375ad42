/** The tokens of accounts and groups by period: a counter for each that was loaded from the ledger. */
import type { Day } from "../../../domain/Calendar.ts"
import { type Period, periods } from "../../../domain/Limits.ts"
import {
  type Account,
  type Claims,
  type CounterName,
  type CounterOwner,
  ownersOf
} from "../../../domain/Reservation.ts"
import { lifeOf, whole } from "../verdicts.ts"

/** A counter that was loaded again is another object. */
export interface Counter {
  tokens: number
  /** the part of `tokens` that requests hold and have not used */
  held: number
  readonly loadedAt: number
  readonly droppedAt: number
}

export type Amounts = { readonly [P in Period]?: number }

const nameOf = ({ group, key = "", model = "", user = "" }: CounterOwner, counter: CounterName): string =>
  JSON.stringify([group, key, user, model, counter])

/** Adds tokens, and the part of them that is held and not used. Both may be negative. */
export const charge = (counter: Counter, tokens: number, held: number): void => {
  counter.tokens = Math.max(0, counter.tokens + tokens)
  counter.held = Math.max(0, counter.held + held)
}

export class Totals {
  readonly #counters = new Map<string, Counter>()

  clear(): void {
    this.#counters.clear()
  }

  /** Drops what is kept for long enough. */
  dropOld(now: number): void {
    for (const [name, { droppedAt }] of this.#counters) if (droppedAt <= now) this.#counters.delete(name)
  }

  /** The counters that a request with `claims` is charged to, in their order; undefined: missing, or none. */
  of(claims: Claims, { counters: names }: Day): ReadonlyArray<Counter | undefined> {
    return ownersOf(claims).flatMap(({ owner }) =>
      periods.map((period) => this.#counters.get(nameOf(owner, names[period])))
    )
  }

  /** Forgets the counters of an account in the periods of a day. */
  forget(account: Account, { counters }: Day): void {
    for (const counter of Object.values(counters)) this.#counters.delete(nameOf(account, counter))
  }

  amounts(owner: CounterOwner, { counters: names }: Day): Amounts {
    const found: { -readonly [P in Period]?: number } = {}
    for (const period of periods) {
      const counter = this.#counters.get(nameOf(owner, names[period]))
      if (counter !== undefined) found[period] = counter.tokens
    }
    return found
  }

  /** Adds a counter that is missing. */
  load(owner: CounterOwner, counter: CounterName, tokens: number, now: number): void {
    const name = nameOf(owner, counter)
    if (this.#counters.has(name)) return
    this.#counters.set(name, {
      tokens: whole(tokens),
      held: 0,
      loadedAt: now,
      droppedAt: now + lifeOf(counter)
    })
  }

  /** Loads counters again that exist: what was charged to the old ones is in `amounts`. */
  replace(owner: CounterOwner, { counters: names }: Day, amounts: Amounts, now: number): void {
    for (const period of periods) {
      const name = nameOf(owner, names[period])
      const [before, tokens] = [this.#counters.get(name), amounts[period]]
      if (before === undefined || tokens === undefined) continue
      this.#counters.set(name, { ...before, tokens: whole(tokens), held: 0, loadedAt: now })
    }
  }
}
