/**
 * The shape of an API key: a three-character namespace ending in `_`, then 41 base62 characters. The first 12
 * characters are the public prefix, the other 32 the secret.
 */
import { randomBytes } from "node:crypto"

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
const prefixLength = 12
const keyLength = 44

export const defaultNamespace = "tg_"

/** Whether `text` could be a key of `namespace`; the only thing looked at before any I/O. */
export const keyShape = (namespace: string): RegExp =>
  new RegExp(`^${namespace}[0-9A-Za-z]{${keyLength - namespace.length}}$`)

export const prefixOf = (key: string): string => key.slice(0, prefixLength)

/** Uniform base62 by rejection: a byte of 248 or more would favour the first eight letters. */
const base62 = (length: number): string => {
  let text = ""
  while (text.length < length) {
    for (const byte of randomBytes(length - text.length + 16)) {
      if (byte < 248 && text.length < length) text += alphabet.charAt(byte % 62)
    }
  }
  return text
}

/** A new key: 53 bits of public prefix, 190 bits of secret. */
export const mintKey = (namespace: string): string => namespace + base62(keyLength - namespace.length)

/**
 * A prefix from its `_` on, and so much of a secret that it is one: keys are also pasted with an end missing, and one
 * right behind another.
 */
const keyLike = /(_[0-9A-Za-z]{9})[0-9A-Za-z]{16,}/g

/** The longest text that cannot hold anything `keyLike`, in any spelling: a spelling is never shorter than its key. */
export const shorterThanKey = 25

/** Whatever may be part of an escaped key, and long enough to hold one. */
const escapable = /[^\P{ASCII}\n !-$&-/:-@[\]^`{-~]{26,}/gu
const escaping = /[%\\\p{Cc}]/u

/** One character of the decoded text, and where it stands in the text as it was sent: from `start` up to `end`. */
interface Decoded {
  readonly char: string
  readonly start: number
  readonly end: number
}

/** How an escape ends that the last character has completed: `%5F`, `\x5f`, `%u005f`, `\u005f`. */
const escapeEnd = /(?:%|\\x)([0-9a-f]{2})$|[%\\]u([0-9a-f]{4})$/i
const longestEscape = 6

/**
 * `text` with its percent-escapes and backslash-escapes undone until there are none left, in one pass: a decoded
 * character may itself complete the next escape. Control characters are left out, because viewers drop them, and so
 * are backslashes before an escape: text that was quoted twice has them. Other backslashes stay, as in `\\n`.
 */
const decodeEscapes = (text: string): ReadonlyArray<Decoded> => {
  const out: Array<Decoded> = []
  for (let at = 0; at < text.length; at += 1) {
    let one: Decoded | undefined = { char: text.charAt(at), start: at, end: at + 1 }
    while (one !== undefined && !/\p{Cc}/u.test(one.char)) {
      out.push(one)
      one = foldEscape(out)
    }
  }
  return withoutQuoting(out)
}

/** Drops the backslashes before an escape, from the end on. */
const withoutQuoting = (decoded: ReadonlyArray<Decoded>): ReadonlyArray<Decoded> => {
  let beforeEscape = false
  const kept = decoded.toReversed().filter(({ char, end, start }) => {
    if (char !== "\\") beforeEscape = end - start > 1
    return char !== "\\" || !beforeEscape
  })
  return kept.toReversed()
}

/** Takes the escape that `out` ends in off it, and answers what it stands for. */
const foldEscape = (out: Array<Decoded>): Decoded | undefined => {
  const last = out.at(-1)
  const mark = (back: number): string => out.at(-back)?.char ?? ""
  // Most characters complete no escape: this says so without a search.
  if (last === undefined || (mark(3) !== "%" && mark(3) !== "x" && !/u/i.test(mark(5)))) return undefined
  const found = escapeEnd.exec(
    out
      .slice(-longestEscape)
      .map(({ char }) => char)
      .join("")
  )
  if (found === null) return undefined
  const [first] = out.splice(-found[0].length)
  const char = String.fromCharCode(Number.parseInt(found[1] ?? found[2] ?? "", 16))
  return { char, start: first?.start ?? last.start, end: last.end }
}

/** Cuts the secrets out of a run that has escapes: what stands around them stays as it was sent. */
const redactEscaped = (text: string): string => {
  const decoded = decodeEscapes(text)
  let [kept, from] = ["", 0]
  for (const match of decoded
    .map(({ char }) => char)
    .join("")
    .matchAll(keyLike)) {
    const prefixEnd = decoded[match.index + (match[1]?.length ?? 0) - 1]?.end ?? from
    const secretEnd = decoded[match.index + match[0].length - 1]?.end ?? text.length
    kept += `${text.slice(from, prefixEnd)}…`
    from = secretEnd
  }
  return kept + text.slice(from)
}

/**
 * What looks like a key, of whatever namespace, wherever it stands and however often it is escaped: the public prefix
 * stays, the secret goes.
 */
export const redactKeys = (text: string): string =>
  text.length <= shorterThanKey
    ? text
    : text
        .replaceAll(escapable, (part) => (escaping.test(part) ? redactEscaped(part) : part))
        .replaceAll(keyLike, "$1…")
