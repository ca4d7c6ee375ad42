import { assert, it } from "@effect/vitest"
import { Effect } from "effect"
import fc from "fast-check"
import { readInstant, readLifetime } from "../../cli/lifetime.ts"
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

it.effect("when a lifetime is read, then it is in minutes, hours, days or weeks, and nothing else", () =>
  Effect.gen(function* () {
    assert.strictEqual(yield* readLifetime("45m"), 2_700_000)
    assert.strictEqual(yield* readLifetime("12h"), 43_200_000)
    assert.strictEqual(yield* readLifetime("30d"), 2_592_000_000)
    assert.strictEqual(yield* readLifetime("2w"), 1_209_600_000)
    for (const text of ["", "30", "d", "-1d", "1.5d", "30 d", "30D", "30d\n", "1y", "9999999d"]) {
      assert.strictEqual((yield* Effect.flip(readLifetime(text))).field, "expires-in", JSON.stringify(text))
    }
  })
)

it.effect(
  "when an instant is read, then it is a date or a time with its zone, and days that do not exist are refused",
  () =>
    Effect.gen(function* () {
      assert.strictEqual((yield* readInstant("2027-01-31")).toISOString(), "2027-01-31T00:00:00.000Z")
      assert.strictEqual(
        (yield* readInstant("2027-01-31T12:00:00+02:00")).toISOString(),
        "2027-01-31T10:00:00.000Z"
      )
      for (const text of [
        "",
        "tomorrow",
        "2027-02-30",
        "2027-13-01",
        "2027-01-31T12:00",
        "31.1.2027",
        "2027"
      ]) {
        assert.strictEqual((yield* Effect.flip(readInstant(text))).field, "expires-at", JSON.stringify(text))
      }
    })
)
