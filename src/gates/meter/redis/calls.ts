/** The names of the keys in Redis, and how calls of an account's script are put into one command (`account.lua`). */
import { counterNamesAt, dayNumber } from "../../../domain/Calendar.ts"
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
  /** the name of the account in Redis */
  readonly name: string
  /** the name of its group */
  readonly group: string
  /** for the names of its day and month, epoch ms */
  readonly instant: number
  /** the numbers that the operation shares with all others of the account, as text */
  readonly shared: string
  /** id of the request */
  readonly id: string
  /** the numbers of the operation */
  readonly own: ReadonlyArray<number>
}

const none: Claims["budgets"] = {}

/** Accounts whose keys are kept as Redis gets them, some 1 KB each. Beyond it all are forgotten. */
const mostAccounts = 1000

export const makeCalls = (prefix: string, lives: string, runId: RedisArgument) => {
  const nameOf = ({ group, key }: CounterOwner) =>
    key === undefined ? `${prefix}${tagOf({ group })}` : `${prefix}${tagOf({ group })}:${key}`

  const countersOf = (name: string, instant: number): Array<string> => {
    const { day, month, total } = counterNamesAt(instant)
    return [`${name}:tokens:${day}`, `${name}:tokens:${month}`, `${name}:tokens:${total}`]
  }

  /** `now`: epoch ms, or -1 for the time of Redis */
  const callOf = (
    { account, limits, budgets, tenantBudgets = none }: Claims,
    id: string,
    instant: number,
    now: number,
    own: ReadonlyArray<number>
  ): AccountCall => {
    const spendable = `${budgets.day ?? -1} ${budgets.month ?? -1} ${budgets.total ?? -1}`
    const tenants = `${tenantBudgets.day ?? -1} ${tenantBudgets.month ?? -1} ${tenantBudgets.total ?? -1}`
    return {
      name: nameOf(account),
      group: nameOf({ group: account.group }),
      instant,
      shared: `${now} ${dayNumber(instant)} ${limits.rpm} ${limits.tpm} ${limits.concurrent} ${lives} ${spendable} ${tenants}`,
      id,
      own
    }
  }

  const accountKeys = new Map<string, { readonly day: number; readonly keys: SharedArguments }>()

  /** The keys that all calls of an account have in common on one day. */
  const keysOf = ({ group, instant, name }: AccountCall): SharedArguments => {
    const day = dayNumber(instant)
    const known = accountKeys.get(name)
    if (known?.day === day) return known.keys
    if (known === undefined && accountKeys.size >= mostAccounts) accountKeys.clear()
    const keys = new SharedArguments([
      `${name}:windows`,
      ...countersOf(name, instant),
      ...countersOf(group, instant)
    ])
    accountKeys.set(name, { day, keys })
    return keys
  }

  /** Calls of one account with the same shared numbers become one section, in the order of their first call. */
  const encode = (calls: ReadonlyArray<AccountCall>): GatheredCommand => {
    const sections = new Map<string, Array<number>>()
    calls.forEach(({ name, shared }, index) => {
      const section = `${name} ${shared}`
      const indexes = sections.get(section)
      if (indexes === undefined) sections.set(section, [index])
      else indexes.push(index)
    })
    const [keys, order]: [Array<CommandArgument>, Array<number>] = [[], []]
    let numbers = ""
    for (const indexes of sections.values()) {
      const [first] = indexes.flatMap((index) => calls[index] ?? [])
      if (first === undefined) continue
      const records = `${first.group}:request:`
      keys.push(keysOf(first))
      numbers += `${indexes.length} ${Buffer.byteLength(records) + 1} ${first.own.length} ${first.shared} `
      for (const index of indexes) {
        const call = calls[index]
        if (call === undefined) continue
        order.push(index)
        keys.push(records + call.id)
        for (const number of call.own) numbers += `${number} `
      }
    }
    return { keys, args: [numbers, runId], order }
  }

  return { nameOf, countersOf, callOf, encode }
}
