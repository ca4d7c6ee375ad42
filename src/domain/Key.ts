/**
 * The shape of an API key: a three-character namespace ending in `_`, then 41 base62 characters. The first 12
 * characters are the public prefix, the other 32 the secret.
 */
import { randomBytes } from "node:crypto"

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
const prefixLength = 12
const keyLength = 44

export const defaultNamespace = "tg_"

/** Matches texts that have the shape of a key of `namespace`. This is checked before any I/O. */
export const keyShape = (namespace: string): RegExp =>
  new RegExp(`^${namespace}[0-9A-Za-z]{${keyLength - namespace.length}}$`)

export const prefixOf = (key: string): string => key.slice(0, prefixLength)

/** Uniform base62. Bytes of 248 and more are rejected: they would favour the first eight characters. */
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
 * Matches a prefix from its `_` on, with at least 16 characters of a secret. So it also matches keys without their end, and
 * keys in a row.
 */
const keyLike = /(_[0-9A-Za-z]{9})[0-9A-Za-z]{16,}/g

/** Texts up to this length contain nothing `keyLike`. An escaped key is never shorter than the key. */
export const shorterThanKey = 25

/** Runs of characters of an escaped key that are long enough for one. */
const escapable = /[^\P{ASCII}\n !-$&-/:-@[\]^`{-~]{26,}/gu
const escaping = /[%\\\p{Cc}]/u

/** One character of the decoded text, with its position in the original text. */
interface Decoded {
  readonly char: string
  readonly start: number
  readonly end: number
}

/** An escape at the end of a text: `%5F`, `\x5f`, `%u005f`, `\u005f`. */
const escapeEnd = /(?:%|\\x)([0-9a-f]{2})$|[%\\]u([0-9a-f]{4})$/i
const longestEscape = 6

/**
 * Decodes percent-escapes and backslash-escapes in one pass until none is left: a decoded character may complete the next
 * escape. Control characters are left out, because viewers drop them. Backslashes before an escape are left out too,
 * because text that was quoted twice has them. Other backslashes stay, as in `\\n`.
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

/** Removes the backslashes before an escape, starting at the end. */
const withoutQuoting = (decoded: ReadonlyArray<Decoded>): ReadonlyArray<Decoded> => {
  let beforeEscape = false
  const unquoted = decoded.toReversed().filter(({ char, end, start }) => {
    if (char !== "\\") beforeEscape = end - start > 1
    return char !== "\\" || !beforeEscape
  })
  return unquoted.toReversed()
}

/** Removes the escape at the end of `out` and returns the character it stands for. */
const foldEscape = (out: Array<Decoded>): Decoded | undefined => {
  const last = out.at(-1)
  const mark = (back: number): string => out.at(-back)?.char ?? ""
  // Most characters complete no escape; this check avoids the search.
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

/** Removes the secrets from text with escapes. The rest of the text does not change. */
const redactEscaped = (text: string): string => {
  const decoded = decodeEscapes(text)
  let [redacted, from] = ["", 0]
  for (const match of decoded
    .map(({ char }) => char)
    .join("")
    .matchAll(keyLike)) {
    const prefixEnd = decoded[match.index + (match[1]?.length ?? 0) - 1]?.end ?? from
    const secretEnd = decoded[match.index + match[0].length - 1]?.end ?? text.length
    redacted += `${text.slice(from, prefixEnd)}…`
    from = secretEnd
  }
  return redacted + text.slice(from)
}

/**
 * Removes the secrets of all keys in a text, of any namespace, escaped or not. The public prefix stays.
 */
export const redactKeys = (text: string): string =>
  text.length <= shorterThanKey
    ? text
    : text
        .replaceAll(escapable, (part) => (escaping.test(part) ? redactEscaped(part) : part))
        .replaceAll(keyLike, "$1…")
