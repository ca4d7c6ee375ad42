/**
 * Calls of an account's scripts. The calls of one script that are made in one turn of the event loop are sent as one EVALSHA:
 * with 32 connections that halves the CPU of Redis for a request.
 */
import { Effect, Record } from "effect"
import { counterNamesAt, dayNumber } from "../../../domain/Calendar.ts"
import { type Budgets, noBudgets, periods } from "../../../domain/Limits.ts"
import type { Account, Claims, CounterOwner, UserLimits } from "../../../domain/Reservation.ts"
import { batchCalls } from "../../../infra/batchCalls.ts"
import { isRefusal, type Redis, RedisFailed } from "../../../infra/Redis.ts"
import { parseJson } from "./replies.ts"
import { accountScripts, type AccountVerb, callsAtOnce } from "./scripts.ts"

export interface AccountCall {
  readonly claims: Claims
  readonly id: string
  /** names the day and month of the counters, epoch ms */
  readonly instant: number
  /** epoch ms, or -1 for the time of Redis */
  readonly now: number
  /** the numbers of the operation */
  readonly own: ReadonlyArray<number>
}

/**
 * The names of the keys. `prefix` is in front of every key. Version 1.0.0 writes braces around the group. While it runs beside this
 * version, both must count in the same keys.
 */
export const makeKeys = (prefix: string) => {
  const nameOf = ({ group, key, user }: CounterOwner) => {
    const ofGroup = `${prefix}{${group}}`
    return key === undefined ? ofGroup : `${ofGroup}:${key}${user === undefined ? "" : `:users:${user}`}`
  }
  return {
    usersOf: ({ group, key }: Account) => `${nameOf({ group, key })}:users`,
    accountOf: (owner: CounterOwner) => `${nameOf(owner)}:account`,
    counterOf: (owner: CounterOwner, counter: string) => `${nameOf(owner)}:tokens:${counter}`,
    countersOf: (owner: CounterOwner, instant: number) => {
      const [name, names] = [nameOf(owner), counterNamesAt(instant)]
      return periods.map((period) => `${name}:tokens:${names[period]}`)
    },
    recordsOf: ({ group }: CounterOwner) => `${nameOf({ group })}:request:`
  }
}

export type Keys = ReturnType<typeof makeKeys>

const amountsOf = (budgets: Budgets) => periods.map((period) => budgets[period] ?? -1)

/** The numbers that the calls of a section share (`state.lua`). */
const sharedOf = ({ claims, instant, now }: AccountCall, lives: ReadonlyArray<number>, mostUsers: number) => [
  now,
  dayNumber(instant),
  claims.limits.rpm,
  claims.limits.tpm,
  claims.limits.concurrent,
  ...lives,
  ...amountsOf(claims.budgets),
  ...amountsOf(claims.tenantBudgets ?? noBudgets),
  ...(claims.user === undefined ? [] : userNumbersOf(claims.user, mostUsers))
]

const userNumbersOf = ({ budgets, limits }: UserLimits, mostUsers: number) => [
  ...amountsOf(budgets),
  limits.rpm,
  limits.tpm,
  limits.concurrent,
  mostUsers
]

/** Calls that share their account and numbers. */
interface Section {
  readonly first: AccountCall
  readonly shared: ReadonlyArray<number>
  readonly indices: Array<number>
}

/** Keys and numbers of one command, and for each of its replies the index of the call. */
export const encodeCalls = (
  keys: Keys,
  lives: ReadonlyArray<number>,
  mostUsers: number,
  calls: ReadonlyArray<AccountCall>
) => {
  const sections: Array<Section> = []
  calls.forEach((call, i) => {
    const { group, key, user } = call.claims.account
    const shared = sharedOf(call, lives, mostUsers)
    const section = sections.find(
      ({ first: { claims }, shared: others }) =>
        claims.account.key === key &&
        claims.account.group === group &&
        claims.account.user === user &&
        claims.user?.id === call.claims.user?.id &&
        others.every((number, n) => number === shared[n])
    )
    if (section === undefined) sections.push({ first: call, shared, indices: [i] })
    else section.indices.push(i)
  })
  const [names, numbers, order]: [Array<string>, Array<number>, Array<number>] = [[], [], []]
  for (const { first, indices, shared } of sections) {
    const { account } = first.claims
    const group = { group: account.group }
    const ofUser = first.claims.user && { ...account, user: first.claims.user.id }
    const records = keys.recordsOf(group)
    names.push(
      keys.accountOf(account),
      ...(ofUser === undefined ? [] : [keys.accountOf(ofUser), keys.usersOf(account)]),
      ...keys.countersOf(account, first.instant),
      ...keys.countersOf(group, first.instant),
      ...(ofUser === undefined ? [] : keys.countersOf(ofUser, first.instant)),
      ...indices.map((i) => records + (calls[i]?.id ?? ""))
    )
    // Lua counts bytes, from 1.
    const idFrom = Buffer.byteLength(records) + 1
    numbers.push(indices.length, idFrom, first.own.length, ofUser === undefined ? 1 : 2, ...shared)
    numbers.push(...indices.flatMap((i) => calls[i]?.own ?? []))
    order.push(...indices)
  }
  return { names, numbers, order }
}

/** Runs the script of a verb for each call, and succeeds with its reply. */
export const makeAccountCalls = (
  redis: Redis["Service"],
  keys: Keys,
  lives: ReadonlyArray<number>,
  mostUsers: number
) =>
  Record.map(callsAtOnce, (most, verb: AccountVerb) => {
    const script = redis.script(accountScripts[verb])
    return batchCalls<AccountCall, unknown, RedisFailed>({
      most,
      // A script that fails on the state of one account has not done the work of the others. Each call may be repeated.
      mayBeOfOne: isRefusal,
      send: Effect.fnUntraced(function* (calls) {
        const { names, numbers, order } = encodeCalls(keys, lives, mostUsers, calls)
        const text = yield* script(names, [JSON.stringify(numbers), redis.runId()])
        const replies = parseJson(text)
        if (!Array.isArray(replies) || replies.length !== calls.length) {
          return yield* new RedisFailed({ cause: `no answer to ${calls.length} calls of ${verb}` })
        }
        const byCall: Array<unknown> = replies.slice()
        order.forEach((call, i) => (byCall[call] = replies[i]))
        return byCall
      })
    })
  })
