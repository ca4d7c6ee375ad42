/**
 * The replies of the scripts (`start.lua`): a tag, and whole numbers after blanks. A survey adds ids, each after a semicolon. A
 * reply with other numbers is an error, so no verdict is made of a part of one.
 */
import { budgetNames, type Period, periods } from "../../../domain/Limits.ts"
import type { Left } from "../verdicts.ts"

type Next = () => number

const leftOf = (next: Next): Left => ({
  requests: next(),
  tokens: next(),
  budgets: budgetNames.map(next),
  now: next(),
  requestsResetMs: next(),
  tokensResetMs: next()
})

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
  reserved: (next: Next) => ({
    tag: "reserved" as const,
    admittedAt: next(),
    held: next(),
    available: next(),
    slot: next() === 1,
    left: leftOf(next)
  }),
  refused: (next: Next) => ({
    tag: "refused" as const,
    /** the number of the claim that has no room, from 1 */
    claim: next(),
    limit: next(),
    waitMs: next(),
    now: next(),
    left: leftOf(next)
  }),
  missing: (next: Next) => ({
    tag: "missing" as const,
    instant: next(),
    flags: budgetNames.map(() => next() === 1)
  }),
  stale: (next: Next) => ({ tag: "stale" as const, instant: next() }),
  ended: () => ({ tag: "ended" as const }),
  renewed: (next: Next) => ({ tag: "renewed" as const, held: next(), exhausted: next() === 1 }),
  left: (next: Next) => ({ tag: "left" as const, left: leftOf(next) }),
  surveyed: (next: Next, ids: ReadonlyArray<string>) => ({
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

const isTag = (text: string): text is Tag => Object.hasOwn(readers, text)

export type Reply = ReturnType<(typeof readers)[Tag]>

/** Returns undefined for anything else. */
export const parseReply = (value: unknown): Reply | undefined => {
  if (typeof value !== "string") return undefined
  const [head = "", ...ids] = value.split(";")
  const [tag = "", ...words] = head.split(" ")
  if (!isTag(tag)) return undefined
  const numbers = words.map(Number)
  let read = 0
  const reply = readers[tag](
    () => numbers[read++] ?? Number.NaN,
    ids.filter((id) => id !== "")
  )
  return read === numbers.length && numbers.every(Number.isSafeInteger) ? reply : undefined
}
