/** Guards for JSON values, where a Schema costs too much for each token (bench/RESULTS.md). */
import { randomUUID } from "node:crypto"
import type { Json, JsonObject } from "./Inference.ts"
import { escapeControls } from "./text.ts"

/** They end a line for readers that split as Python's `splitlines` does, and JSON may have them raw. */
const lineEnds = /[\u0085\u2028\u2029]/

/** JSON that no reader splits: other line ends than `\n` are escaped. */
export const unsplit = (json: string): string => (lineEnds.test(json) ? escapeControls(json, "\n") : json)

/** The JSON that a client gets. All of it is written here, so that no text of a model can end a line. */
export const jsonText = (value: unknown): string => unsplit(JSON.stringify(value))

export const isArray = (value: Json | undefined): value is ReadonlyArray<Json> => Array.isArray(value)

export const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** Whether `value` is a safe integer of at least 0. In nanoseconds that is up to 104 days. */
export const isCount = (value: Json | undefined): value is number =>
  Number.isSafeInteger(value) && Number(value) >= 0

/** The entries of `fields` that are neither undefined nor null; with `names`, of those. */
export const present = (
  fields: { readonly [key: string]: Json | undefined },
  names: ReadonlyArray<string> = Object.keys(fields)
): JsonObject => {
  const result: { [key: string]: Json } = {}
  for (const name of names) {
    const value = fields[name]
    if (value !== undefined && value !== null) result[name] = value
  }
  return result
}

/**
 * Maximal levels of a request. `JSON.parse` reads any depth, but `JSON.stringify` and other recursive functions would
 * overflow the stack.
 */
export const requestDepth = 64

/** Maximal levels of the arguments of a tool call, so that a client can send them back in its next request. */
export const answerDepth = requestDepth - 8

/** Whether `value` has more than `levels` levels. It does not look deeper than that. */
export const isDeeperThan = (value: Json, levels: number): boolean => {
  if (typeof value !== "object" || value === null) return false
  if (levels === 0) return true
  return Object.values(value).some((inner) => isDeeperThan(inner, levels - 1))
}

const quote = 0x22
const colon = 0x3a
const backslash = 0x5c

/** Characters that are looked at one by one before `indexOf` looks for the end of a string. */
const near = 16

/**
 * Index after the closing quote of the string that starts at `start`, or -1. `indexOf` finds a quote in a long text a hundred
 * times as fast as a loop. It costs more than a few steps of the loop, and a text may have many escaped quotes.
 */
export const endOfString = (text: string, start: number): number => {
  let at = start + 1
  for (;;) {
    const until = Math.min(at + near, text.length)
    while (at < until) {
      const code = text.charCodeAt(at)
      if (code === quote) return at + 1
      at += code === backslash ? 2 : 1
    }
    const found = text.indexOf('"', at)
    if (found === -1) return -1
    // An odd number of backslashes escapes the quote.
    let first = found
    while (first > at && text.charCodeAt(first - 1) === backslash) first -= 1
    at = found + 1
    if ((found - first) % 2 === 0) return at
  }
}

/** Index of the first character from `from` on that is not white space, or the length of the text. */
export const afterSpace = (text: string, from: number): number => {
  let i = from
  while (i < text.length && isSpace(text.charCodeAt(i))) i++
  return i
}

const isSpace = (code: number): boolean => code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09

/** Whether the string that ends before `end` is a key. */
export const isKey = (text: string, end: number): boolean => text.charCodeAt(afterSpace(text, end)) === colon

const hasEscapedKey = (text: string): boolean => {
  for (let at = text.indexOf("\\"); at !== -1; at = text.indexOf("\\", at)) {
    at = endOfString(text, at - 1)
    if (at === -1) return false
    if (isKey(text, at)) return true
  }
  return false
}

/** The start of the names in place of keys. No key of the text begins so. It is short, because a text may have many such keys. */
const unusedStart = (text: string): string => {
  const start = `_${randomUUID().slice(0, 8)}`
  return text.includes(`"${start}`) ? unusedStart(text) : start
}

/** Quotes, backslashes and control characters: JSON has nearly all of them only as escapes. */
const alwaysEscaped = /["\\\p{Cc}]/u

/** Whether `readJson` must give a name to a key with escapes, which takes it several times as long as to read the key. */
export const isNamed = (key: string): boolean => alwaysEscaped.test(key)

/** The text without escapes in its keys. Where that cannot be, a key has a name in its place. `keys`: the key of each name. */
const withoutEscapes = (text: string, keys: Map<string, string>): string => {
  const start = unusedStart(text)
  const known = new Map<string, string>()
  const instead = (literal: string): string => {
    const before = known.get(literal)
    if (before !== undefined) return before
    const key: string = JSON.parse(literal)
    const name = isNamed(key) ? `${start}${keys.size}` : key
    if (name !== key) keys.set(name, key)
    known.set(literal, name)
    return name
  }
  let [done, from] = ["", 0]
  for (let at = text.indexOf('"'); at !== -1;) {
    const end = endOfString(text, at)
    if (end === -1) break
    if (isKey(text, end)) {
      const literal = text.slice(at, end)
      if (literal.includes("\\")) {
        done += `${text.slice(from, at)}"${instead(literal)}"`
        from = end
      }
    }
    at = text.indexOf('"', end)
  }
  return done + text.slice(from)
}

type Parsed = null | boolean | number | string | Array<Parsed> | { [key: string]: Parsed }

const plain = { configurable: true, enumerable: true, writable: true }

/** Puts the keys back. It changes `value`, which is nobody else's yet. */
const withKeys = (value: Parsed, keys: ReadonlyMap<string, string>): Parsed => {
  if (typeof value !== "object" || value === null) return value
  if (Array.isArray(value)) {
    for (const [i, inner] of value.entries()) if (typeof inner === "object") value[i] = withKeys(inner, keys)
    return value
  }
  let hasNames = false
  for (const name in value) {
    const inner = value[name]
    if (typeof inner === "object") value[name] = withKeys(inner, keys)
    hasNames ||= keys.has(name)
  }
  if (!hasNames) return value
  const read: { [key: string]: Parsed } = {}
  for (const name in value) {
    const key = keys.get(name) ?? name
    // The prototype of an object has this name too.
    if (key === "__proto__") Object.defineProperty(read, key, { ...plain, value: value[name] })
    else read[key] = value[name] ?? null
  }
  return read
}

/**
 * `JSON.parse`, which fails on what is no JSON. V8 reads a key with an escape as another one when an object of any request before had
 * a key such as `\` in its place (docs/upstream/v8-escaped-keys.md), so V8 gets keys without escapes.
 */
export const readJson = (text: string): Json => {
  if (!text.includes("\\") || !hasEscapedKey(text)) return JSON.parse(text)
  const keys = new Map<string, string>()
  const read: Parsed = JSON.parse(withoutEscapes(text, keys))
  return keys.size === 0 ? read : withKeys(read, keys)
}

/** Undefined when the text is not JSON. */
export const tryParseJson = (text: string): Json | undefined => {
  try {
    return readJson(text)
  } catch {
    return undefined
  }
}
