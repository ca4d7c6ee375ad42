/**
 * Parses the reply of a script (`start.lua`): a tag and whole numbers separated by blanks; a survey adds ids, each
 * after a semicolon. It is parsed by hand, because every request waits for two of them.
 */

const tags = [
  "reserved",
  "refused",
  "missing",
  "stale",
  "ended",
  "renewed",
  "left",
  "surveyed",
  "done"
] as const

export type Tag = (typeof tags)[number]

export interface Reply {
  readonly tag: Tag
  readonly numbers: ReadonlyArray<number>
  readonly ids: ReadonlyArray<string>
}

const none: ReadonlyArray<string> = []

/** Returns undefined for anything else. */
export const parseReply = (value: unknown): Reply | undefined => {
  if (typeof value !== "string") return undefined
  const end = value.indexOf(";")
  const words = (end === -1 ? value : value.slice(0, end)).split(" ")
  const tag = tags.find((tag) => tag === words[0])
  if (tag === undefined) return undefined
  const numbers: Array<number> = []
  for (let i = 1; i < words.length; i++) {
    const word = words[i]
    // An empty part would be read as 0.
    const number = word === "" ? Number.NaN : Number(word)
    if (!Number.isSafeInteger(number)) return undefined
    numbers.push(number)
  }
  return {
    tag,
    numbers,
    ids: end === -1 || end === value.length - 1 ? none : value.slice(end + 1).split(";")
  }
}
