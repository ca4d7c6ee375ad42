/**
 * The shape of an API key: a three-character namespace ending in `_`, then 41 base62 characters. The first 12
 * characters are the public prefix, the other 32 the secret.
 */
import { randomBytes } from "node:crypto"
import { escapeControls } from "./text.ts"

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

/** The same at the end of a text that was cut: the secret may have its other characters, or the rest of an escape, behind the cut. */
const cutKeyLike = /(_[0-9A-Za-z]{9})(?:[0-9A-Za-z]{16,}|[0-9A-Za-z%\\]*$)/g

/** Texts up to this length contain nothing `keyLike`. An escaped key is never shorter than the key. */
export const shorterThanKey = 25

const escapeSign = /[%\\][\da-fux]|\p{Cc}/iu

/** The escape at the end of a text: `%5F`, `\x5f`, `%u005f` or `\u005f`. */
const escapeAtEnd = /(?:%|\\x)([\da-f]{2})$|[%\\]u([\da-f]{4})$/i
/** What begins such an escape stands so many characters before its end. */
const escapeLengths = [3, 4, 6]
const longestEscape = 6

/** A character, and where it begins and ends in a text, escaped or not. */
interface Read {
  readonly char: string
  readonly start: number
  readonly end: number
}

const isSign = (char: string | undefined): boolean => char === "%" || char === "\\"

/** Viewers drop control characters, but for a line feed that is written as one. */
const isShown = ({ char, end, start }: Read): boolean =>
  !/\p{Cc}/u.test(char) || (char === "\n" && end === start + 1)

/**
 * Resolves percent-escapes and backslash-escapes. Each character is read once: a resolved one goes to the end of what was
 * read, where it may complete the next escape. So `%2541` becomes `A`. Backslashes before an escape are left out, because text that was quoted twice has them; others stay, as in `\\n`.
 */
const readEscaped = (text: string): ReadonlyArray<Read> => {
  const read: Array<Read> = []
  for (let at = 0; at < text.length; at += 1) {
    let one: Read = { char: text.charAt(at), start: at, end: at + 1 }
    while (isShown(one)) {
      read.push(one)
      // Most characters end no escape, and the pattern is not cheap.
      if (!escapeLengths.some((length) => isSign(read.at(-length)?.char))) break
      const tail = read.slice(-longestEscape)
      const [escape, two, four] = escapeAtEnd.exec(tail.map(({ char }) => char).join("")) ?? []
      if (escape === undefined) break
      const [first] = read.splice(-escape.length)
      const char = String.fromCharCode(Number.parseInt(two ?? four ?? "", 16))
      one = { char, start: first?.start ?? at, end: at + 1 }
    }
  }
  const kept: Array<Read> = []
  let isEscape = false
  for (const one of read.toReversed()) {
    if (one.char !== "\\") isEscape = one.end - one.start > 1
    else if (isEscape) continue
    kept.push(one)
  }
  return kept.toReversed()
}

/** Removes the secrets from text with escapes. The rest of the text does not change. */
const redactEscaped = (text: string, pattern: RegExp): string => {
  const read = readEscaped(text)
  let redacted = ""
  let from = 0
  const plain = read.map(({ char }) => char).join("")
  for (const { 0: all, 1: prefix = "", index } of plain.matchAll(pattern)) {
    redacted += `${text.slice(from, read[index + prefix.length - 1]?.end)}…`
    from = read[index + all.length - 1]?.end ?? text.length
  }
  return redacted + text.slice(from)
}

const redactBy = (text: string, pattern: RegExp): string =>
  escapeSign.test(text) ? redactEscaped(text, pattern) : text.replaceAll(pattern, "$1…")

/**
 * Removes the secrets of all keys in a text, of any namespace, escaped or not. The public prefix stays. The time that it takes
 * is proportional to the length of the text, whatever is in it.
 */
export const redactKeys = (text: string): string =>
  text.length <= shorterThanKey ? text : redactBy(text, keyLike)

/** The same for the beginning of a text that was cut, which may end inside a secret. */
export const redactCutKeys = (text: string): string => redactBy(text, cutKeyLike)

/**
 * Makes a text safe for a log or a terminal: without secrets of keys, with control characters escaped, on one line. With
 * `lines`, line feeds are kept, because the gateway wrote them.
 */
export const redact = (text: string, lines = false): string =>
  redactKeys(escapeControls(text, lines ? "\n" : ""))
