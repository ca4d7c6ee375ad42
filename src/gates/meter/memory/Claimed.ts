/** The accounts that a request claims, and the users of each key that have one. */
import type { Day } from "../../../domain/Calendar.ts"
import { type BudgetName, type EffectiveLimits, orderOf } from "../../../domain/Limits.ts"
import type { AccountScope } from "../../../domain/Reservation.ts"
import { windowMs } from "../bounds.ts"
import type { ClaimName } from "../Meter.ts"
import type { WindowsLeft } from "../verdicts.ts"
import type { AccountState } from "./AccountState.ts"

/** An account that a request claims, and what it may use there. */
export interface Claimed {
  readonly account: AccountState
  readonly limits: EffectiveLimits
  readonly scope: AccountScope
}

export const statesOf = (accounts: ReadonlyArray<Claimed>): ReadonlyArray<AccountState> =>
  accounts.map(({ account }) => account)

/** Tokens that still fit in the windows of all accounts. */
export const roomOf = (accounts: ReadonlyArray<Claimed>): number =>
  Math.min(...accounts.map(({ account, limits }) => limits.tpm - account.tokens.sum - account.held))

/** The first limit that has no room, in the order of the accounts. */
export const fullLimit = (accounts: ReadonlyArray<Claimed>, asked: number, slot: boolean) => {
  for (const { account, limits, scope } of accounts) {
    const { held, requests, slots, tokens } = account
    const refused = (by: ClaimName, limit: number, waitMs: number) => ({ by, scope, limit, waitMs })
    if (requests.sum >= limits.rpm) return refused("requests", limits.rpm, requests.waitFor(limits.rpm - 1))
    if (asked > 0 && limits.tpm - tokens.sum - held <= 0) {
      // What is held may be released unused at any moment: alone it is no reason to wait.
      const counted = held < limits.tpm ? held : 0
      return refused("tokens", limits.tpm, tokens.waitFor(limits.tpm - 1 - counted))
    }
    if (slot && slots >= limits.concurrent) return refused("concurrency", limits.concurrent, 1)
  }
  return undefined
}

/** What is left of a budget, and what of it requests hold and have not used. */
interface Remainder {
  readonly name: BudgetName
  readonly budget: number
  readonly left: number
  readonly held: number
}

/** The budget that has nothing left and decides. */
export const fullBudget = (remainders: ReadonlyArray<Remainder>, { ends }: Day) => {
  const empty = remainders.filter(({ left }) => left <= 0)
  const spent = empty.filter(({ held, left }) => left + held <= 0)
  // What is held may be released unused at any moment: a budget that it alone fills decides last.
  const deciding = spent.length > 0 ? spent : empty
  // The one that ends last decides, because the request could not pass before; of equals the account's own.
  const order = orderOf(ends.week > ends.month)
  const last = order.findLast((period) => deciding.some(({ name }) => name.period === period))
  const decisive = deciding.find(({ name }) => name.period === last)
  return decisive && { ...decisive, waitMs: spent.length > 0 ? 0 : 1 }
}

export const windowsLeft = ({ account: { held, requests, tokens }, limits }: Claimed): WindowsLeft => ({
  requests: Math.max(0, limits.rpm - requests.sum),
  tokens: Math.max(0, limits.tpm - tokens.sum - held),
  requestsResetMs: requests.emptyIn,
  tokensResetMs: held > 0 ? windowMs : tokens.emptyIn
})

/** The users of each key, with the time until which each counts. */
export class Users {
  readonly most: number
  readonly #users = new Map<string, Map<string, number>>()

  constructor(most: number) {
    this.most = most
  }

  /** How long a user counts after a change of its account, at most. */
  keptMs(leaseMs: number): number {
    return windowMs + leaseMs + 60_000
  }

  clear(): void {
    this.#users.clear()
  }

  keep(key: string, user: string, until: number): void {
    const users = this.#users.get(key) ?? new Map<string, number>()
    this.#users.set(key, users.set(user, until))
  }

  /** The user that leaves when `user` comes; undefined: there is room. */
  leaving(key: string, user: string): { readonly user: string; readonly until: number } | undefined {
    const users = this.#users.get(key)
    if (users === undefined || users.has(user) || users.size < this.most) return undefined
    const [oldest] = [...users].toSorted(([, one], [, other]) => one - other)
    return oldest === undefined ? undefined : { user: oldest[0], until: oldest[1] }
  }

  delete(key: string, user: string): void {
    this.#users.get(key)?.delete(user)
  }
}
