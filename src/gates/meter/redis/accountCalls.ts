/**
 * Calls of an account's scripts. The calls of one script that are made in one turn of the event loop are sent as one EVALSHA:
 * with 32 connections that halves the CPU of Redis for a request.
 */
import { Effect, Record } from "effect"
import type { Day } from "../../../domain/Calendar.ts"
import { type ExtraBudget, periods } from "../../../domain/Limits.ts"
import { tryParseJson } from "../../../domain/json.ts"
import {
  type Account,
  accountsOf,
  type Claims,
  type CounterOwner,
  ownersOf
} from "../../../domain/Reservation.ts"
import { batchCalls } from "../../../infra/batchCalls.ts"
import { isRefusal, type Redis, RedisFailed } from "../../../infra/Redis.ts"
import { budgetsOf } from "../verdicts.ts"
import { accountScripts, type AccountVerb, callsAtOnce } from "./scripts.ts"

export interface AccountCall {
  readonly claims: Claims
  readonly id: string
  /** names the counters */
  readonly day: Day
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
  const nameOf = ({ group, key, model, user }: CounterOwner) => {
    const parts = [
      ...(key === undefined ? [] : [key]),
      ...(user === undefined ? [] : ["users", user]),
      ...(model === undefined ? [] : ["models", model])
    ]
    return [`${prefix}{${group}}`, ...parts].join(":")
  }
  return {
    usersOf: ({ group, key }: Account) => `${nameOf({ group, key })}:users`,
    accountOf: (owner: CounterOwner) => `${nameOf(owner)}:account`,
    counterOf: (owner: CounterOwner, counter: string) => `${nameOf(owner)}:tokens:${counter}`,
    countersOf: (owner: CounterOwner, { counters }: Day) => {
      const name = nameOf(owner)
      return periods.map((period) => `${name}:tokens:${counters[period]}`)
    },
    recordsOf: ({ group }: CounterOwner) => `${nameOf({ group })}:request:`
  }
}

export type Keys = ReturnType<typeof makeKeys>

const extraNumbersOf = (extra: ExtraBudget | undefined) =>
  extra === undefined ? [0, 0, 0] : [extra.tokens, extra.upTo, extra.until]

/** What is the same for all calls with the same claims on one day. */
interface Shared {
  readonly day: Day
  readonly names: ReadonlyArray<string>
  /** names of the records, without the id, and where the id begins: Lua counts bytes, from 1 */
  readonly records: string
  readonly idFrom: number
  /** how many accounts */
  readonly accounts: number
  /** in the order of `state.lua`, after the time */
  readonly numbers: ReadonlyArray<number>
}

/** Returns the keys and numbers of one command, and for each of its replies the index of the call. */
export const makeEncoder = (keys: Keys, lives: ReadonlyArray<number>, mostUsers: number) => {
  const sharedOf = ({ claims, day }: AccountCall): Shared => {
    const { account, budgets, limits, tenantBudgets, user } = claims
    const [, ...others] = accountsOf(claims)
    const names = [
      keys.accountOf(account),
      ...others.map((other) => keys.accountOf(other.account)),
      ...(others.length === 0 ? [] : [keys.usersOf(account)]),
      ...ownersOf(claims).flatMap(({ owner }) => keys.countersOf(owner, day))
    ]
    const numbers = [
      day.number,
      day.start,
      day.ends.day,
      day.ends.week > day.ends.month ? 1 : 0,
      ...extraNumbersOf(budgets.extra),
      ...extraNumbersOf(tenantBudgets?.extra),
      limits.rpm,
      limits.tpm,
      limits.concurrent,
      ...lives,
      ...budgetsOf(claims).map((budget) => budget ?? -1),
      ...others.flatMap(({ limits: { concurrent, rpm, tpm } }) => [rpm, tpm, concurrent]),
      ...(others.length === 0 ? [] : [user === undefined ? 0 : mostUsers])
    ]
    const records = keys.recordsOf(account)
    const idFrom = Buffer.byteLength(records) + 1
    return { day, names, records, idFrom, accounts: others.length + 1, numbers }
  }

  /** The claims of a key are one object until the key is read again (`Limiter.ts`). */
  const known = new WeakMap<Claims, Shared>()
  const shared = (call: AccountCall): Shared => {
    const before = known.get(call.claims)
    if (before?.day.number === call.day.number) return before
    const made = sharedOf(call)
    known.set(call.claims, made)
    return made
  }

  return (calls: ReadonlyArray<AccountCall>) => {
    const sections: Array<{ readonly of: Shared; readonly now: number; readonly indices: Array<number> }> = []
    calls.forEach((call, i) => {
      const of = shared(call)
      const section = sections.find((other) => other.of === of && other.now === call.now)
      if (section === undefined) sections.push({ of, now: call.now, indices: [i] })
      else section.indices.push(i)
    })
    const [names, numbers, order]: [Array<string>, Array<number>, Array<number>] = [[], [], []]
    for (const { indices, now, of } of sections) {
      const own: Array<number> = []
      names.push(...of.names)
      for (const i of indices) {
        names.push(of.records + (calls[i]?.id ?? ""))
        own.push(...(calls[i]?.own ?? []))
      }
      numbers.push(indices.length, of.idFrom, own.length / indices.length, of.accounts)
      numbers.push(now, ...of.numbers, ...own)
      order.push(...indices)
    }
    return { names, numbers, order }
  }
}

/** Runs the script of a verb for each call, and succeeds with its reply. */
export const makeAccountCalls = (
  redis: Redis["Service"],
  keys: Keys,
  lives: ReadonlyArray<number>,
  mostUsers: number
) => {
  const encode = makeEncoder(keys, lives, mostUsers)
  return Record.map(callsAtOnce, (most, verb: AccountVerb) => {
    const script = redis.script(accountScripts[verb])
    return batchCalls<AccountCall, unknown, RedisFailed>({
      most,
      // A script that fails on the state of one account has not done the work of the others. Each call may be repeated.
      mayBeOfOne: isRefusal,
      send: Effect.fnUntraced(function* (calls) {
        const { names, numbers, order } = encode(calls)
        const text = yield* script(names, [JSON.stringify(numbers), redis.runId()])
        const replies = tryParseJson(String(text))
        if (!Array.isArray(replies) || replies.length !== calls.length) {
          return yield* new RedisFailed({ cause: `no answer to ${calls.length} calls of ${verb}` })
        }
        const byCall: Array<unknown> = replies.slice()
        order.forEach((call, i) => (byCall[call] = replies[i]))
        return byCall
      })
    })
  })
}
