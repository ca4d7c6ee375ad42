/**
 * The replies of the scripts (`start.lua`): an array of a tag and whole numbers; a survey has an array of ids at its end. A reply
 * with more or fewer numbers is an error, so no verdict is made of a part of one.
 */
import { budgetNames, type Period, periods } from "../../../domain/Limits.ts"
import type { Left } from "../verdicts.ts"

type Next = () => number

/** The budgets of a reply about a user, and of any other. */
const budgetsOfAll = budgetNames.map(({ scope }) => scope)
const budgetsOfOthers = budgetsOfAll.filter((scope) => scope !== "user")

const leftOf = (next: Next, ofUser: boolean): Left => {
  const [requests, tokens] = [next(), next()]
  const [userRequests, userTokens] = ofUser ? [next(), next()] : [0, 0]
  const budgets = (ofUser ? budgetsOfAll : budgetsOfOthers).map(next)
  const now = next()
  const windows = { requests, tokens, requestsResetMs: next(), tokensResetMs: next() }
  const userWindows = ofUser
    ? { requests: userRequests, tokens: userTokens, requestsResetMs: next(), tokensResetMs: next() }
    : undefined
  return { windows, userWindows, budgets, now }
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
  reserved: (next: Next, ofUser: boolean) => ({
    tag: "reserved" as const,
    admittedAt: next(),
    held: next(),
    available: next(),
    slot: next() === 1,
    left: leftOf(next, ofUser)
  }),
  refused: (next: Next, ofUser: boolean) => ({
    tag: "refused" as const,
    /** the number of the claim that has no room, from 1 */
    claim: next(),
    limit: next(),
    waitMs: next(),
    now: next(),
    left: leftOf(next, ofUser)
  }),
  missing: (next: Next, ofUser: boolean) => ({
    tag: "missing" as const,
    instant: next(),
    flags: (ofUser ? budgetsOfAll : budgetsOfOthers).map(() => next() === 1)
  }),
  /** `day`: the number of the day that it was charged to; -1: it was not */
  stale: (next: Next) => ({ tag: "stale" as const, instant: next(), day: next() }),
  ended: () => ({ tag: "ended" as const }),
  renewed: (next: Next) => ({ tag: "renewed" as const, held: next(), exhausted: next() === 1 }),
  left: (next: Next, ofUser: boolean) => ({ tag: "left" as const, left: leftOf(next, ofUser) }),
  surveyed: (next: Next, _ofUser: boolean, ids: ReadonlyArray<string>) => ({
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

/** Returns undefined for anything else. `ofUser`: whether the call was about an account and one of its users. */
export const readReply = (value: unknown, ofUser: boolean): Reply | undefined => {
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
  const reply = readers[tag](next, ofUser, ids ?? [])
  return isWhole && at + 1 === end ? reply : undefined
}
