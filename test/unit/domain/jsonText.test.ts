import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { endOfString } from "../../../src/domain/json.ts"

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
