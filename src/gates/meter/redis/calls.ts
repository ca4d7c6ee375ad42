/** The names of the keys in Redis, and how calls of an account's script are put into one command (`state.lua`). */
import { counterNamesAt, dayNumber } from "../../../domain/Calendar.ts"
import { type Budgets, noBudgets, periods } from "../../../domain/Limits.ts"
import type { GatheredCommand, RedisArgument } from "../../../infra/Redis.ts"
import { type CommandArgument, SharedArguments } from "../../../infra/RedisCommand.ts"
import type { Claims, CounterOwner } from "../../../domain/Reservation.ts"
import { tagOf } from "../verdicts.ts"

/**
 * Calls that one command may have. Redis serves nobody else while a script runs. 24 requests of 24 accounts take it about
 * 1 ms, of one account 0.3 ms (`bench/RESULTS.md`).
 */
export const maxCallsInCommand = 24

/** One call of an account's script. */
export interface AccountCall {
  readonly section: Section
  /** epoch ms, or -1 for the time of Redis */
  readonly now: number
  readonly id: string
  /** the numbers of the operation */
  readonly own: ReadonlyArray<number>
}

/** What all calls of an account on one day share while its limits do not change. */
interface Section {
  readonly claims: Claims
  readonly day: number
  readonly keys: SharedArguments
  /** the key of a record without the id */
  readonly recordPrefix: string
  /** where the id begins in the key of a record, as text */
  readonly idFrom: string
  /** the numbers that the operation shares with all others, without the time */
  readonly shared: string
}

const sameBudgets = (a: Budgets, b: Budgets): boolean =>
  a === b || periods.every((period) => a[period] === b[period])

/** Of one account, as far as the account's key says. */
const sameClaims = (a: Claims, b: Claims): boolean =>
  a.account.group === b.account.group &&
  a.limits.rpm === b.limits.rpm &&
  a.limits.tpm === b.limits.tpm &&
  a.limits.concurrent === b.limits.concurrent &&
  sameBudgets(a.budgets, b.budgets) &&
  sameBudgets(a.tenantBudgets ?? noBudgets, b.tenantBudgets ?? noBudgets)

/** Accounts whose section is kept, some 2 KB each. Beyond it all are forgotten. */
const mostAccounts = 1000

export const makeCalls = (prefix: string, lives: string, runId: RedisArgument) => {
  const nameOf = ({ group, key }: CounterOwner) =>
    key === undefined ? `${prefix}${tagOf({ group })}` : `${prefix}${tagOf({ group })}:${key}`

  const countersOf = (name: string, instant: number): Array<string> => {
    const { day, month, total } = counterNamesAt(instant)
    return [`${name}:tokens:${day}`, `${name}:tokens:${month}`, `${name}:tokens:${total}`]
  }

  const makeSection = (claims: Claims, instant: number): Section => {
    const { account, budgets, limits, tenantBudgets = noBudgets } = claims
    const [name, group, day] = [nameOf(account), nameOf({ group: account.group }), dayNumber(instant)]
    const recordPrefix = `${group}:request:`
    const spendable = [budgets, tenantBudgets].flatMap((of) => periods.map((period) => of[period] ?? -1))
    return {
      claims,
      day,
      keys: new SharedArguments([
        `${name}:windows`,
        ...countersOf(name, instant),
        ...countersOf(group, instant)
      ]),
      recordPrefix,
      idFrom: String(Buffer.byteLength(recordPrefix) + 1),
      shared: [day, limits.rpm, limits.tpm, limits.concurrent, lives, ...spendable].join(",")
    }
  }

  /** The last section of each account, by the key of the account. */
  const lastSections = new Map<string, Section>()

  const sectionOf = (claims: Claims, instant: number): Section => {
    const { key } = claims.account
    const last = lastSections.get(key)
    if (last !== undefined && last.day === dayNumber(instant) && sameClaims(last.claims, claims)) return last
    if (last === undefined && lastSections.size >= mostAccounts) lastSections.clear()
    const section = makeSection(claims, instant)
    lastSections.set(key, section)
    return section
  }

  /** `instant` names the day and month. `now`: epoch ms, or -1 for the time of Redis. */
  const callOf = (
    claims: Claims,
    id: string,
    instant: number,
    now: number,
    own: ReadonlyArray<number>
  ): AccountCall => ({ section: sectionOf(claims, instant), now, id, own })

  /** Calls with the same section and time follow each other, in the order of the first of them. */
  const encode = (calls: ReadonlyArray<AccountCall>): GatheredCommand => {
    const [keys, order]: [Array<CommandArgument>, Array<number>] = [[], []]
    let numbers = ""
    calls.forEach((first, from) => {
      const { now, section } = first
      const isSame = (call: AccountCall) => call.section === section && call.now === now
      if (calls.findIndex(isSame) < from) return
      keys.push(section.keys)
      let [count, own] = [0, ""]
      for (let i = from; i < calls.length; i++) {
        const call = calls[i]
        if (call === undefined || !isSame(call)) continue
        count += 1
        order.push(i)
        keys.push(section.recordPrefix + call.id)
        for (const number of call.own) own += `,${number}`
      }
      if (numbers !== "") numbers += ","
      numbers += `${count},${section.idFrom},${first.own.length},${now},${section.shared}${own}`
    })
    return { keys, args: [`[${numbers}]`, runId], order }
  }

  return { nameOf, countersOf, callOf, encode }
}
