/**
 * The `pattern` of a text in a schema. Simple ones are kept: characters, `.`, brackets, `\d`, `\w` and escaped signs, each with an
 * optional quantifier, from `^` to `$`. All others are left out.
 *
 * For: every Ollama up to 0.24.0. A group `(?…)` or a quantifier at the beginning ends its main process, `\d` ends its runner, and
 * `.` matches the quote that ends the text. Shown by `test/real/survival.real.ts` and `test/real/schemas.real.ts`.
 */

/** A text in JSON has none of these as they are. */
const neverInText = String.raw`"\\\x7F\x00-\x1F`

const shorthands: Readonly<Record<string, string>> = { "\\d": "0-9", "\\w": "A-Za-z0-9_" }

/** Shorthands; signs that mean themselves after a backslash or in brackets; ranges; and what means itself everywhere. */
const member =
  /\\[dw/_]|\\?[.*+?(){}|$-]|[A-Za-z0-9]-[A-Za-z0-9]|[A-Za-z0-9 _@:/,;!#%&'=~<>\x60\u00a1-\ud7ff\ue000-\ufffd]/guy

/** One character, a dot or brackets, with a quantifier or none. */
const piece =
  /(?:(\\[dw/_.*+?(){}|$-]|-|[A-Za-z0-9 _@:/,;!#%&'=~<>\x60\u00a1-\ud7ff\ue000-\ufffd])|(\.)|\[(\^?)((?:\\.|[^\]\\])+)\])([?*+]|\{(\d{1,4})(?:(,)(\d{0,4}))?\})?/guy

const isDescending = (text: string): boolean => text.length === 3 && text.charCodeAt(0) > text.charCodeAt(2)

/** The members of brackets as a grammar has them; undefined when there is another one. A dash that is first is no range. */
const membersOf = (text: string): string | undefined => {
  const members = [...text.matchAll(member)].map(([found]) => found)
  if (members.join("") !== text || members.some(isDescending)) return undefined
  const written = members.map((one) => shorthands[one] ?? (one.length === 2 ? one.slice(1) : one))
  return (written.includes("-") ? "-" : "") + written.filter((one) => one !== "-").join("")
}

export interface Pattern {
  readonly text: string
  /** how often each piece with braces is repeated */
  readonly repetitions: ReadonlyArray<number>
}

/** The pattern for Ollama; undefined when it is not a simple one, or has a larger number than `most` in braces. */
export const patternOf = (pattern: string, most: number): Pattern | undefined => {
  const inner = /^\^(.*)\$$/s.exec(pattern)?.[1] ?? ""
  const repetitions: Array<number> = []
  let [read, text] = [0, ""]
  for (const [whole, one, dot, not = "", many, quantifier = "", least, comma, to] of inner.matchAll(piece)) {
    read += whole.length
    const members = dot === undefined ? membersOf(one ?? many ?? "") : ""
    if (members === undefined) return undefined
    text += dot !== undefined || not !== "" ? `[^${not === "" ? "" : members}${neverInText}]` : `[${members}]`
    text += quantifier
    if (least === undefined) continue
    const times = Number(comma === undefined || to === "" ? least : to)
    if (times > most || times === 0 || times < Number(least)) return undefined
    repetitions.push(times)
  }
  return inner !== "" && read === inner.length ? { text: `^${text}$`, repetitions } : undefined
}
