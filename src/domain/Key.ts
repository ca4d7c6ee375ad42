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

/**
 * The same at the end of a text that was cut: the secret may have its other characters, or the rest of an escape, behind the cut.
 */
const cutKeyLike = /(_[0-9A-Za-z]{9})(?:[0-9A-Za-z]{16,}|[0-9A-Za-z%\\]*$)/g

/** Texts up to this length contain nothing `keyLike`. An escaped key is never shorter than the key. */
export const shorterThanKey = 25

/** Every escape has one of these in the text itself, also one that is escaped again. */
const escapeSign = /[%\\][\da-fux]|\p{Cc}/iu

const backslash = 0x5c
const lineFeed = 0x0a

const isControl = (code: number): boolean => code < 0x20 || (code >= 0x7f && code < 0xa0)

/** The value of each hexadecimal digit by its code; -1 for other characters. */
const digits = Int8Array.from({ length: 128 }, (_, code) => {
  const digit = Number.parseInt(String.fromCharCode(code), 16)
  return Number.isNaN(digit) ? -1 : digit
})
const digitOf = (code = 0): number => digits[code] ?? -1

/** The length of the escape at the end of `codes`, `%5F`, `\x5f`, `%u005f` or `\u005f`, or 0. */
const escapeLength = (codes: Uint16Array, length: number): number => {
  if (length < 3 || digitOf(codes[length - 1]) < 0 || digitOf(codes[length - 2]) < 0) return 0
  switch (codes[length - 3]) {
    case 0x25: // %
      return 3
    case 0x58: // X
    case 0x78: // x
      return codes[length - 4] === backslash ? 4 : 0
  }
  if (length < 6 || digitOf(codes[length - 3]) < 0 || digitOf(codes[length - 4]) < 0) return 0
  const u = codes[length - 5]
  if (u !== 0x75 && u !== 0x55) return 0
  const sign = codes[length - 6]
  return sign === 0x25 || sign === backslash ? 6 : 0
}

/** A text with its escapes resolved, and the place in the text where each character begins and ends. */
interface Decoded {
  readonly text: string
  readonly starts: Uint32Array
  readonly ends: Uint32Array
}

/**
 * Resolves percent-escapes and backslash-escapes. Each character is read once: a resolved one goes to the end of what is
 * decoded, where it may complete the next escape. So `%2541` becomes `A`. Control characters are left out, because viewers
 * drop them, but a line feed of the text itself stays. Backslashes before an escape are left out, because text that was quoted
 * twice has them; others stay, as in `\\n`.
 */
const decodeEscapes = (text: string): Decoded => {
  const codes = new Uint16Array(text.length)
  const starts = new Uint32Array(text.length)
  const ends = new Uint32Array(text.length)
  let length = 0
  for (let at = 0; at < text.length; at += 1) {
    let code = text.charCodeAt(at)
    let start = at
    while (!isControl(code) || (code === lineFeed && start === at)) {
      codes[length] = code
      starts[length] = start
      ends[length] = at + 1
      length += 1
      const escape = escapeLength(codes, length)
      if (escape === 0) break
      code = 0
      for (let n = escape === 6 ? 4 : 2; n > 0; n -= 1) code = 16 * code + digitOf(codes[length - n])
      length -= escape
      start = starts[length] ?? 0
    }
  }
  let isEscape = false
  let first = length
  for (let i = length - 1; i >= 0; i -= 1) {
    const code = codes[i] ?? 0
    if (code !== backslash) isEscape = (ends[i] ?? 0) > (starts[i] ?? 0) + 1
    else if (isEscape) continue
    first -= 1
    if (first === i) continue
    codes[first] = code
    starts[first] = starts[i] ?? 0
    ends[first] = ends[i] ?? 0
  }
  return {
    text: Buffer.from(codes.buffer, 2 * first, 2 * (length - first)).toString("utf16le"),
    starts: starts.subarray(first, length),
    ends: ends.subarray(first, length)
  }
}

/** Removes the secrets from text with escapes. The rest of the text does not change. */
const redactEscaped = (text: string, pattern: RegExp): string => {
  const decoded = decodeEscapes(text)
  let redacted = ""
  let from = 0
  for (const match of decoded.text.matchAll(pattern)) {
    const [all, prefix = ""] = match
    redacted += `${text.slice(from, decoded.ends[match.index + prefix.length - 1])}…`
    from = decoded.ends[match.index + all.length - 1] ?? text.length
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
