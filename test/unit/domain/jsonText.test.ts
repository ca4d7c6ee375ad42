import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { endOfString, readJson, tryParseJson } from "../../../src/domain/json.ts"

/** The same, character by character. */
const endOf = (text: string, start: number): number => {
  for (let i = start + 1; i < text.length; i += 1) {
    if (text[i] === "\\") i += 1
    else if (text[i] === '"') return i + 1
  }
  return -1
}

it("when a string has any escapes, then its end is the first quote without an odd number of backslashes", () => {
  const piece = fc.oneof(
    fc.constantFrom("\\", "\\", '"', '\\"', "\\\\", "é", "\u{1f600}"),
    fc.nat(40).map((length) => "a".repeat(length)),
    fc.nat(40).map((length) => "\\".repeat(length))
  )
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), fc.nat(3), (pieces, start) => {
      const text = `["x${pieces.join("")}`
      assert.strictEqual(endOfString(text, start), endOf(text, start), text)
    }),
    { numRuns: 20_000 }
  )
})

it("when text is escaped in any way, then its end is found", () => {
  for (const text of [
    "",
    "a",
    '"',
    '"'.repeat(50),
    "\\".repeat(51),
    `${"x".repeat(15)}"`,
    `${"x".repeat(16)}\\"y`
  ]) {
    const json = JSON.stringify(text)
    assert.strictEqual(endOfString(`${json}:"`, 0), json.length, json)
    assert.strictEqual(endOfString(json.slice(0, -1), 0), -1, json)
  }
})

/** Each character of each key as an escape, so that no key is read as one of before. */
const plain = fc.string({ unit: fc.constantFrom("a", "\\", '"', "é", "\n", "u", "0", ":"), maxLength: 4 })
const escaped = (key: string): string =>
  `"${[...key].map((sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`).join("")}"`
const entries = fc.uniqueArray(fc.tuple(plain, fc.constantFrom("1", '"a\\""', "[]", "{}")), {
  selector: ([key]) => key,
  maxLength: 5
})

it("when keys have escapes, then each is read as it is written, whatever was read before", () => {
  fc.assert(
    fc.property(entries, fc.boolean(), (all, hides) => {
      const keys = all.map(([key]) => key).filter((key) => key !== "__proto__")
      const text = `{${all
        .map(([key, value]) => `${hides ? escaped(key) : JSON.stringify(key)} : ${value}`)
        .join(",")}}`
      const read = readJson(`[${text},{"a":${text}}]`)
      assert.deepStrictEqual(Object.keys(Object(Object(read)[0])).toSorted(), keys.toSorted(), text)
      assert.deepStrictEqual(Object(read)[1].a, Object(read)[0])
    }),
    { numRuns: 5000 }
  )
})

it("when another request had a key with a backslash, then a key with an escape is not read as that one", () => {
  assert.deepStrictEqual(readJson('{"type":"object","gr\\\\u0":1}'), { type: "object", "gr\\u0": 1 })
  const read = readJson('{"type":"object","gr\\u00f6\\u00dfe":{"\\"":[{"\\u0031":true}]}}')
  assert.deepStrictEqual(read, { type: "object", größe: { '"': [{ "1": true }] } })
})

it("when a text with escaped keys is no JSON, then it is refused, and a key of a prototype is a key", () => {
  for (const text of ['{"\\":1}', '{"a\\"', '{"a\\x":1}', '{"\\"":1', '"\\":', '\\"a":1'])
    assert.isUndefined(tryParseJson(text), text)
  assert.deepStrictEqual(Object.keys(Object(readJson('{"__proto__":1,"\\n":2}'))), ["__proto__", "\n"])
})
