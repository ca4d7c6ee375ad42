/**
 * Parses the reply of a script (`start.lua`): a tag and whole numbers separated by blanks; a survey adds ids, each
 * after a semicolon. It is parsed by hand, because every request waits for two of them.
 */
import { Record } from "effect"
import { budgetNames, periods } from "../../../domain/Limits.ts"

/** What is left: requests, tokens, the budgets, the time, and two times until all is left again (`reply_with_headroom`). */
const headroom = 2 + budgetNames.length + 3

/** How many numbers a reply has after its tag. A reply with more or fewer is no answer, so a verdict is never made of a part. */
const counts = {
  reserved: 4 + headroom,
  refused: 4 + headroom,
  missing: 1 + budgetNames.length,
  stale: 1,
  ended: 0,
  renewed: 2,
  left: headroom,
  surveyed: 2 + periods.length,
  repaired: 1,
  done: 0
}

const tags = Record.keys(counts)

export type Tag = keyof typeof counts

export interface Reply {
  readonly tag: Tag
  readonly numbers: ReadonlyArray<number>
  readonly ids: ReadonlyArray<string>
}

const none: ReadonlyArray<string> = []

const [blank, minus, zero, nine] = [0x20, 0x2d, 0x30, 0x39]

/**
 * The whole numbers that `text` has from `from` up to `end`, each after a blank; undefined when there is anything else. Their
 * digits are added up here, because `Number` would need a text for each.
 */
const numbersIn = (text: string, from: number, end: number): ReadonlyArray<number> | undefined => {
  const numbers: Array<number> = []
  for (let at = from; at < end;) {
    const isNegative = text.charCodeAt(at + 1) === minus
    const first = isNegative ? at + 2 : at + 1
    let number = 0
    for (at = first; at < end; at += 1) {
      const code = text.charCodeAt(at)
      if (code === blank) break
      if (code < zero || code > nine) return undefined
      number = number * 10 + (code - zero)
    }
    if (at === first || number > Number.MAX_SAFE_INTEGER) return undefined
    numbers.push(isNegative ? -number : number)
  }
  return numbers
}

/** Returns undefined for anything else. */
export const parseReply = (value: unknown): Reply | undefined => {
  if (typeof value !== "string") return undefined
  const idsFrom = value.indexOf(";")
  const end = idsFrom === -1 ? value.length : idsFrom
  const afterTag = value.indexOf(" ")
  const tagEnd = afterTag === -1 || afterTag > end ? end : afterTag
  const tag = tags.find((tag) => tag.length === tagEnd && value.startsWith(tag))
  const numbers = numbersIn(value, tagEnd, end)
  if (tag === undefined || numbers?.length !== counts[tag]) return undefined
  return {
    tag,
    numbers,
    ids: end >= value.length - 1 ? none : value.slice(end + 1).split(";")
  }
}
