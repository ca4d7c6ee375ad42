/**
 * JSON from a client, read strictly: valid UTF-8, at most 64 levels, no key twice in one object, nothing after the value.
 *
 * The backend's decoder takes the last of two equal keys, and `JSON.parse` does not report them, so a body with a
 * duplicate key is refused (docs/hardening.md B08). The scan comes first and does not recurse, so deep nesting cannot
 * overflow the stack. Then `JSON.parse` does the work.
 */
import { Result } from "effect"
import type { Json } from "../../domain/Inference.ts"
import { afterSpace, endOfString, requestDepth } from "../../domain/json.ts"

/**
 * Maximal number of objects and lists in a body. An empty one has two bytes as text, sixty in memory, and more during the
 * scan. A body of the default size that is full of tool schemas has some 15,000.
 */
export const maxContainers = 32_768
/** Maximal number of keys in a body. Each is looked up, and some are read again by a schema. */
export const maxKeys = 65_536

/**
 * Maximal number of values in a body. Two bytes of text are one more number, and a schema looks at each before it knows that a list
 * is too long. The longest list that a field takes, a sealed `context`, has half as many.
 */
export const maxValues = 262_144

const quote = 0x22
const openBrace = 0x7b
const closeBrace = 0x7d
const openBracket = 0x5b
const closeBracket = 0x5d
const colon = 0x3a
const comma = 0x2c

const isKey = (text: string, from: number): boolean => text.charCodeAt(afterSpace(text, from)) === colon

/** Finds errors in the nesting or the keys of `text`. It does not check whether the text is JSON at all. */
const findProblem = (text: string): string | undefined => {
  // One entry per open bracket: the keys of an object, or undefined for an array.
  const open: Array<Set<string> | undefined> = []
  let containers = 0
  let [count, values] = [0, 1]
  for (let i = 0; i < text.length;) {
    const code = text.charCodeAt(i)
    if (code === quote) {
      const end = endOfString(text, i)
      if (end === -1) return undefined
      const keys = open[open.length - 1]
      if (keys !== undefined && isKey(text, end)) {
        const key = keyText(text.slice(i, end))
        if (key === undefined) return undefined
        count += 1
        if (count > maxKeys) return `body: at most ${maxKeys} keys`
        if (keys.has(key)) return "body: no key may appear twice in one object"
        keys.add(key)
      }
      i = end
      continue
    }
    if (code === openBrace || code === openBracket) {
      if (open.length === requestDepth) return `body: at most ${requestDepth} levels of nesting`
      containers += 1
      if (containers > maxContainers) return `body: at most ${maxContainers} objects and lists`
      open.push(code === openBrace ? new Set() : undefined)
    } else if (code === closeBrace || code === closeBracket) {
      open.pop()
    } else if (code === comma) {
      values += 1
      if (values > maxValues) return `body: at most ${maxValues} values`
    }
    i++
  }
  return undefined
}

/** A key with its escapes resolved: `mode\u006c` is `model`. */
const keyText = (literal: string): string | undefined => {
  if (!literal.includes("\\")) return literal.slice(1, -1)
  const parsed = Result.getOrUndefined(parse(literal))
  return typeof parsed === "string" ? parsed : undefined
}

const parse = (text: string): Result.Result<Json, string> =>
  Result.try({
    try: (): Json => JSON.parse(text),
    catch: () => "body: expected valid JSON"
  })

/** Returns the value, or a message about what is wrong. */
export const parseJson = (text: string): Result.Result<Json, string> => {
  const problem = findProblem(text)
  return problem === undefined ? parse(text) : Result.fail(problem)
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })

const decodeUtf8 = (bytes: ArrayBuffer | Uint8Array): Result.Result<string, string> =>
  Result.try({ try: () => utf8.decode(bytes), catch: () => "body: expected valid UTF-8" })

export interface Body {
  readonly json: Json
  /** size as received */
  readonly bytes: number
}

/** Returns the decoded bytes, or a message about what is wrong. */
export const parseBody = (bytes: ArrayBuffer | Uint8Array): Result.Result<Body, string> =>
  bytes.byteLength === 0
    ? Result.fail("body: missing")
    : Result.map(Result.flatMap(decodeUtf8(bytes), parseJson), (json) => ({ json, bytes: bytes.byteLength }))
