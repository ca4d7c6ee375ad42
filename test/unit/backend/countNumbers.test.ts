import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { countNumbers } from "../../../src/backend/ollama/countNumbers.ts"

/**
 * The count as `JSON.parse` gives it, for bytes that begin and end with the brackets of the list. In Latin-1 each byte is
 * one character.
 */
const parsedCount = (json: Buffer): number | undefined => {
  if (json.at(0) !== 0x5b || json.at(-1) !== 0x5d) return undefined
  let value: unknown
  try {
    value = JSON.parse(json.toString("latin1"))
  } catch {
    return undefined
  }
  if (!Array.isArray(value)) return undefined
  return value.every((item) => typeof item === "number" && Number.isFinite(Math.fround(item)))
    ? value.length
    : undefined
}

/** Numbers at every limit of the grammar and of float32, and texts that only look like numbers. */
const item = fc.oneof(
  { weight: 3, arbitrary: fc.double({ noNaN: true, noDefaultInfinity: true }).map(String) },
  { weight: 3, arbitrary: fc.float({ noNaN: true, noDefaultInfinity: true }).map(String) },
  fc
    .tuple(
      fc.constantFrom("", "-", "+", "--"),
      fc.stringMatching(/^[0-9]{0,45}$/),
      fc.constantFrom("", ".", ".0", ".123456789", "..1"),
      fc.constantFrom("", "e", "E5", "e-5", "e+38", "e39", "e-999", "e+", "e-", "e5.5")
    )
    .map((parts) => parts.join("")),
  fc.constantFrom("340282346638528859811704183484516925440", "340282356779733661637539395458142568448"),
  fc.constantFrom("3.4028235e38", "3.4028236e38", "1e400", "0e999", "-0", "0.", ".5", "01", "0x1", "1_0"),
  fc.constantFrom("null", "true", '"1"', "[1]", "{}", "", "NaN", "Infinity", "١", "1é", "1\u0000", "1\u00a0")
)
const gap = fc.constantFrom("", "", "", " ", "\n", "\r\n\t", "\u00a0", "\u000b", "\f")
const separator = fc.oneof({ weight: 9, arbitrary: fc.constant(",") }, fc.constantFrom(",,", ";", "", " "))

const list = fc
  .tuple(
    fc.constantFrom("[", "[", "[", "", "[["),
    fc.array(fc.tuple(gap, item, gap, separator), { maxLength: 6 }),
    gap,
    fc.constantFrom("]", "]", "]", "", "]]", "] ", ",]")
  )
  .map(([open, items, space, close]) => {
    const texts = items.map(([before, text, after, between], i) =>
      i === items.length - 1 ? before + text + after : before + text + after + between
    )
    return open + space + texts.join("") + close
  })

const assertSame = (json: Buffer) => assert.strictEqual(countNumbers(json), parsedCount(json), String(json))

it("when bytes are a list of numbers or look like one, then the count is that of JSON.parse", () => {
  fc.assert(
    fc.property(list, (text) => assertSame(Buffer.from(text))),
    { numRuns: 20_000 }
  )
})

it("when a byte of a list is changed, then the count is that of JSON.parse", () => {
  const vector = fc.array(fc.float({ noNaN: true, noDefaultInfinity: true }), { minLength: 1, maxLength: 20 })
  fc.assert(
    fc.property(vector, fc.nat(), fc.nat(255), fc.boolean(), (numbers, place, byte, inserts) => {
      const json = Buffer.from(JSON.stringify(numbers))
      const at = place % json.length
      assertSame(json)
      assertSame(Buffer.concat([json.subarray(0, at), Buffer.of(byte), json.subarray(inserts ? at : at + 1)]))
    }),
    { numRuns: 20_000 }
  )
})

it("when a list is part of a larger buffer, then no byte outside of it counts", () => {
  const whole = Buffer.from("[0.12345678][0.5,0.25]99999999")
  assert.strictEqual(countNumbers(whole.subarray(0, 12)), 1)
  assert.strictEqual(countNumbers(whole.subarray(12, 22)), 2)
  assert.strictEqual(countNumbers(whole.subarray(12, 21)), undefined)
})
