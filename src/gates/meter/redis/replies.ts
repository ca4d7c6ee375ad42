/**
 * The replies of the scripts (`start.lua`): an array of a tag and whole numbers; a survey has an array of ids at its end. A reply
 * with more or fewer numbers is an error, so no verdict is made of a part of one.
 */
import { type Period, periods } from "../../../domain/Limits.ts"
import type { Left, WindowsLeft } from "../verdicts.ts"

type Next = () => number

/** Each account has counters of all periods, and the group. */
const leftOf = (next: Next, accounts: number): Left => {
  const windows: Array<WindowsLeft> = []
  for (let n = 0; n < accounts; n += 1)
    windows.push({ requests: next(), tokens: next(), requestsResetMs: next(), tokensResetMs: next() })
  const budgets: Array<number> = []
  for (let n = (accounts + 1) * periods.length; n > 0; n -= 1) budgets.push(next())
  return { windows, budgets, now: next() }
}

const totalsOf = (next: Next): { readonly [P in Period]?: number } => {
  const totals: { -readonly [P in Period]?: number } = {}
  for (const period of periods) {
    const tokens = next()
    if (tokens >= 0) totals[period] = tokens
  }
  return totals
}

/** What follows each tag. The properties are read in the order of the numbers. */
const readers = {
  reserved: (next: Next, accounts: number) => ({
    tag: "reserved" as const,
    admittedAt: next(),
    held: next(),
    available: next(),
    slot: next() === 1,
    left: leftOf(next, accounts)
  }),
  refused: (next: Next, accounts: number) => ({
    tag: "refused" as const,
    /** the number of the claim that has no room, from 1 */
    claim: next(),
    limit: next(),
    waitMs: next(),
    now: next(),
    left: leftOf(next, accounts)
  }),
  missing: (next: Next, accounts: number) => ({
    tag: "missing" as const,
    instant: next(),
    flags: Array.from({ length: (accounts + 1) * periods.length }, () => next() === 1)
  }),
  /** `day`: the number of the day that it was charged to; -1: it was not */
  stale: (next: Next) => ({ tag: "stale" as const, instant: next(), day: next() }),
  ended: () => ({ tag: "ended" as const }),
  renewed: (next: Next) => ({ tag: "renewed" as const, held: next(), exhausted: next() === 1 }),
  left: (next: Next, accounts: number) => ({ tag: "left" as const, left: leftOf(next, accounts) }),
  surveyed: (next: Next, _accounts: number, ids: ReadonlyArray<string>) => ({
    tag: "surveyed" as const,
    mark: next(),
    open: next(),
    totals: totalsOf(next),
    ids
  }),
  repaired: (next: Next) => ({ tag: "repaired" as const, done: next() === 1 }),
  done: () => ({ tag: "done" as const })
}

type Tag = keyof typeof readers

const isTag = (word: unknown): word is Tag => typeof word === "string" && Object.hasOwn(readers, word)

export type Reply = ReturnType<(typeof readers)[Tag]>

/** Returns undefined for anything else. `accounts`: how many the call was about. */
export const readReply = (value: unknown, accounts: number): Reply | undefined => {
  const words: ReadonlyArray<unknown> = Array.isArray(value) ? value : []
  const [tag] = words
  if (!isTag(tag)) return undefined
  const last: unknown = words.at(-1)
  const ids = Array.isArray(last) ? last.map(String) : undefined
  const end = ids === undefined ? words.length : words.length - 1
  let [at, isWhole] = [0, true]
  const next = (): number => {
    const number = words[(at += 1)]
    isWhole &&= Number.isSafeInteger(number)
    return Number(number)
  }
  const reply = readers[tag](next, accounts, ids ?? [])
  return isWhole && at + 1 === end ? reply : undefined
}
