import { assert, it } from "@effect/vitest"
import { Option } from "effect"
import fc from "fast-check"
import { readDay, readInstant, readLifetime } from "../../cli/times.ts"
import { minute, table } from "../../cli/terminal.ts"

it("when a table is printed, then it fits its terminal down to a readable minimum, whatever is in it", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.string({ maxLength: 200 }), fc.string({ maxLength: 200 })), { maxLength: 5 }),
      fc.integer({ min: 20, max: 200 }),
      (rows, width) => {
        const clean = rows.map((row) => row.map((cell) => cell.replaceAll(/[\p{C}\p{Z}]/gu, "x")))
        for (const line of table(["FIRST", "SECOND"], clean, width).split("\n")) {
          assert.isAtMost([...line].length, width)
        }
      }
    )
  )
})

it("when the output is not a terminal, then nothing is cut", () => {
  const long = "m".repeat(500)
  assert.include(table(["MODEL"], [[long]], Number.POSITIVE_INFINITY), long)
})

it("when a time is printed, then it is to the minute in UTC", () => {
  assert.strictEqual(minute(new Date("2026-11-21T05:10:54Z")), "2026-11-21 05:10")
  assert.strictEqual(minute(null), "-")
})

it("when a lifetime is read, then it is in minutes, hours, days or weeks, and nothing else", () => {
  for (const [text, ms] of [
    ["45m", 2_700_000],
    ["12h", 43_200_000],
    ["30d", 2_592_000_000],
    ["2w", 1_209_600_000]
  ] as const)
    assert.deepStrictEqual(readLifetime(text), Option.some(ms))
  for (const text of ["", "30", "d", "-1d", "1.5d", "30 d", "30D", "30d\n", "1y", "9999999d"])
    assert.isTrue(Option.isNone(readLifetime(text)), JSON.stringify(text))
})

it("when a time is read, then it is a date or a time with its zone, and days that do not exist are refused", () => {
  for (const [text, iso] of [
    ["2027-01-31", "2027-01-31T00:00:00.000Z"],
    ["2027-01-31T12:00:00+02:00", "2027-01-31T10:00:00.000Z"]
  ] as const)
    assert.deepStrictEqual(readInstant(text), Option.some(new Date(iso)))
  for (const text of ["", "tomorrow", "2027-02-30", "2027-13-01", "2027-01-31T12:00", "31.1.2027", "2027"])
    assert.isTrue(Option.isNone(readInstant(text)), JSON.stringify(text))
  assert.deepStrictEqual(readDay("30d"), Option.some({ daysAgo: 30 }))
  assert.deepStrictEqual(readDay("2027-01-31"), Option.some({ day: "2027-01-31" }))
  for (const text of ["yesterday", "2027-02-30", "2027-01-31T12:00Z", "30w"])
    assert.isTrue(Option.isNone(readDay(text)), JSON.stringify(text))
})
