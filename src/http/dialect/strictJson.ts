/**
 * JSON from a client, read strictly: valid UTF-8, at most 64 levels, no key twice in one object, nothing after the value.
 *
 * The backend's decoder takes the last of two equal keys, and `JSON.parse` does not report them, so a body with a
 * duplicate key is refused (docs/hardening.md B08). The scan comes first and does not recurse, so deep nesting cannot
 * overflow the stack. Then `readJson` does the work.
 */
import { Result } from "effect"
import type { Json } from "../../domain/Inference.ts"
import { endOfString, isKey, isNamed, readJson, requestDepth } from "../../domain/json.ts"

/**
 * Maximal number of objects and lists in a body. An empty one has two bytes as text, sixty in memory, and more during the
 * scan. A body of the default size that is full of tool schemas has some 15,000.
 */
export const maxContainers = 32_768
/**
 * Maximal number of different keys in a body. V8 makes a shape for each new key: a body of 26,000 different ones takes three times as
 * long as any other, and the most memory. The tools of an agent have some hundreds.
 */
export const maxNames = 4096

/**
 * Maximal number of keys with a quote, a backslash or a control character in a text: each takes several times as long to read as
 * another key. The arguments of a tool call are a text of their own.
 */
export const maxEscaped = 512

/**
 * Maximal number of values in a body. Two bytes of text are one more number, and a schema looks at each before it knows that a list
 * is too long. The longest list that a field takes, a sealed `context`, has half as many.
 */
export const maxValues = 262_144

/**
 * Bytes of memory for each thing in a body, from its text to the text of the call. Measured with Node 24 over all dialects
 * (`test/unit/http/dialect/weights.test.ts`).
 */
const weights = { character: 6, container: 200, key: 50, value: 60 }

const quote = 0x22
const openBrace = 0x7b
const closeBrace = 0x7d
const openBracket = 0x5b
const closeBracket = 0x5d
const colon = 0x3a
const comma = 0x2c
const backslash = 0x5c
const space = 0x20

/** Whether a string may begin as an object does: with a brace, an escape or a blank. */
const mayBeJson = (first: number): boolean => first === openBrace || first === backslash || first <= space

/**
 * What `text` can take of memory while it is parsed, checked and written again, in bytes; or what is wrong with its nesting or its
 * keys. It does not check whether the text is JSON at all.
 */
const weigh = (text: string, characterBytes: number): Result.Result<number, string> => {
  // One entry per open bracket: the keys of an object, or undefined for an array.
  const open: Array<Set<string> | undefined> = []
  const names = new Set<string>()
  const read = new Map<string, string>()
  let [containers, values, escaped] = [0, 1, 0]
  let weight = text.length * characterBytes + weights.value
  for (let i = 0; i < text.length;) {
    const code = text.charCodeAt(i)
    if (code === quote) {
      const end = endOfString(text, i)
      if (end === -1) break
      const keys = open[open.length - 1]
      if (keys !== undefined && isKey(text, end)) {
        const literal = text.slice(i, end)
        const isEscaped = literal.includes("\\")
        const key = isEscaped ? (read.get(literal) ?? escapedKey(literal)) : literal.slice(1, -1)
        if (key === undefined) break
        if (isEscaped) {
          read.set(literal, key)
          if (isNamed(key)) escaped += 1
        }
        if (escaped > maxEscaped)
          return Result.fail(
            `body: at most ${maxEscaped} keys with quotes, backslashes or control characters`
          )
        weight += weights.key
        if (keys.has(key)) return Result.fail("body: no key may appear twice in one object")
        keys.add(key)
        names.add(key)
        if (names.size > maxNames) return Result.fail(`body: at most ${maxNames} different keys`)
      } else if (mayBeJson(text.charCodeAt(i + 1))) {
        // The arguments of a tool call are JSON in a string, and are parsed too.
        for (let at = i + 1; at < end; at += 1) {
          const inner = text.charCodeAt(at)
          if (inner === openBrace || inner === openBracket) weight += weights.container
          else if (inner === comma || inner === colon) weight += weights.value
        }
      }
      i = end
      continue
    }
    if (code === openBrace || code === openBracket) {
      if (open.length === requestDepth) return Result.fail(`body: at most ${requestDepth} levels of nesting`)
      containers += 1
      weight += weights.container
      if (containers > maxContainers) return Result.fail(`body: at most ${maxContainers} objects and lists`)
      open.push(code === openBrace ? new Set() : undefined)
    } else if (code === closeBrace || code === closeBracket) {
      open.pop()
    } else if (code === comma) {
      values += 1
      weight += weights.value
      if (values > maxValues) return Result.fail(`body: at most ${maxValues} values`)
    }
    i++
  }
  return Result.succeed(weight)
}

/** A key with its escapes resolved: `mode\u006c` is `model`. */
const escapedKey = (literal: string): string | undefined => {
  const parsed = Result.getOrUndefined(parse(literal))
  return typeof parsed === "string" ? parsed : undefined
}

const parse = (text: string): Result.Result<Json, string> =>
  Result.try({
    try: () => readJson(text),
    catch: () => "body: expected valid JSON"
  })

/** It skips a byte order mark, which some programs write before JSON. */
const utf8 = new TextDecoder("utf-8", { fatal: true })

const decodeUtf8 = (bytes: ArrayBuffer | Uint8Array): Result.Result<string, string> =>
  Result.try({ try: () => utf8.decode(bytes), catch: () => "body: expected valid UTF-8" })

export interface Body {
  readonly json: Json
  /** size as received */
  readonly bytes: number
}

/** JSON in a string of a body, whose memory is claimed with that of the body. */
export const parseJson = (text: string): Result.Result<Json, string> =>
  Result.flatMap(weigh(text, 0), () => parse(text))

/**
 * Returns the decoded bytes, or a message about what is wrong. `claim` gets the memory that they can take before they are parsed, and
 * may refuse it.
 */
export const parseBody = <E = never>(
  bytes: ArrayBuffer | Uint8Array,
  claim: (weight: number) => E | undefined = () => undefined
): Result.Result<Body, string | E> => {
  if (bytes.byteLength === 0) return Result.fail("body: missing")
  return Result.flatMap(decodeUtf8(bytes), (text) =>
    Result.flatMap(
      // A text with other characters than ASCII may take two bytes for each.
      weigh(text, text.length === bytes.byteLength ? weights.character : 2 * weights.character),
      (weight): Result.Result<Body, string | E> => {
        const refusal = claim(weight)
        if (refusal !== undefined) return Result.fail(refusal)
        return Result.map(parse(text), (json) => ({ json, bytes: bytes.byteLength }))
      }
    )
  )
}
