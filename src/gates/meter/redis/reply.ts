/**
 * What a script answers (`start.lua`): a tag and whole numbers with blanks between them; a survey names ids after that,
 * each behind a semicolon. Read by hand, because two of them are in the way of every request.
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

/** `undefined` for anything that is no answer of a script. */
export const parseReply = (value: unknown): Reply | undefined => {
  if (typeof value !== "string") return undefined
  const end = value.indexOf(";")
  const words = (end === -1 ? value : value.slice(0, end)).split(" ")
  const tag = tags.find((tag) => tag === words[0])
  if (tag === undefined) return undefined
  const numbers: Array<number> = []
  for (let i = 1; i < words.length; i++) {
    const word = words[i]
    // An empty word would be taken for 0.
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
