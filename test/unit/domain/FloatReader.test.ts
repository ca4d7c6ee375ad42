import { assert, it } from "@effect/vitest"
import * as fc from "fast-check"
import { FloatReader } from "../../../src/domain/FloatReader.ts"

const readAll = (text: string, places = 4): ReadonlyArray<number> => {
  const reader = new FloatReader(Buffer.from(text))
  const floats = new Float32Array(places)
  const numbers: Array<number> = []
  for (let count = reader.readInto(floats); count > 0; count = reader.readInto(floats)) {
    numbers.push(...floats.subarray(0, count))
  }
  return numbers
}

const parsed = (text: string): ReadonlyArray<number> => {
  const numbers: ReadonlyArray<number> = JSON.parse(text)
  return numbers.map((number) => Math.fround(number))
}

const gap = fc.constantFrom("", "", " ", "\n\t\r ")
/** A number from 16 to 128 half way between two float32, or a little more: its first digits do not tell to which of them it belongs. */
const nearMiddle = fc
  .tuple(fc.integer({ min: 0x41800000, max: 0x43000000 }), fc.constantFrom("", "0", "000001", "1"))
  .map(([bits, more]) => {
    const [low = 0, high = 0] = new Float32Array(Uint32Array.of(bits, bits + 1).buffer)
    return `${((low + high) / 2).toFixed(20)}${more}`
  })
/** Numbers of every size, with few digits and with more than a float64 has, with zeros before and after them. */
const number = fc.oneof(
  nearMiddle,
  fc
    .double({ noNaN: true, noDefaultInfinity: true, min: -3e38, max: 3e38 })
    .map((value) => JSON.stringify(value)),
  fc.double({ noNaN: true, min: -20, max: 20 }).map((value) => JSON.stringify(value)),
  fc.float({ noNaN: true, noDefaultInfinity: true }).map((value) => value.toPrecision(9)),
  fc
    .tuple(
      fc.constantFrom("", "-"),
      fc.stringMatching(/^(0|[1-9][0-9]{0,19})$/),
      fc.stringMatching(/^(\.0{0,24}[0-9]{1,20})?$/),
      fc.constantFrom("", "", "", "e-7", "E+3", "e0")
    )
    .map((parts) => parts.join("")),
  fc.constantFrom(
    "-0",
    "-0.0",
    "9007199254740991",
    "9007199254740993",
    "0.9007199254740993",
    "99999999999999.99"
  )
)

it("when a vector has any numbers, then each is the float32 of what JSON.parse reads", () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(gap, number, gap), { maxLength: 12 }), (items) => {
      const text = `[${items.map((item) => item.join("")).join(",")}]`
      assert.deepStrictEqual(readAll(text), parsed(text), text)
    }),
    { numRuns: 10_000 }
  )
})

it("when digits that are not read decide which float32 is nearest, then the text decides", () => {
  const texts = [
    // Half way between 1 and the next float32, and a little more.
    "1.000000059604644775390625",
    "1.0000000596046447753906251",
    "1.00000005960464477539062",
    // Near the middle of two float32, with more digits than float64 has.
    "40241978242043481951",
    "8270403043950853664",
    "293963889485912493674",
    "17962838560964872933"
  ]
  for (const text of texts) {
    assert.deepStrictEqual(readAll(`[${text},-${text}]`), parsed(`[${text},-${text}]`), text)
  }
})

it("when a vector is part of a larger buffer, then nothing outside of it is read", () => {
  const floats = new Float32Array(4)
  const reader = new FloatReader(Buffer.from("[7][0.25, 1e2][8]").subarray(3, 14))
  assert.strictEqual(reader.readInto(floats), 2)
  assert.deepStrictEqual([...floats], [0.25, 100, 0, 0])
  assert.strictEqual(reader.readInto(floats), 0)
})
