import { assert, it } from "@effect/vitest"
import { Option } from "effect"
import fc from "fast-check"
import { deadlineOf, periodOf } from "../../src/admin/period.ts"
import { makeCalendar, utc } from "../../src/domain/Calendar.ts"
import { readDeadline, readLifetime, readMoment, readMonth } from "../../cli/times.ts"
import { endCell, render, tableOf } from "../../cli/terminal.ts"

it("when a table is printed, then it fits its terminal down to a readable minimum, whatever is in it", () => {
  fc.assert(
    fc.property(
      fc.array(fc.tuple(fc.string({ maxLength: 200 }), fc.string({ maxLength: 200 })), { maxLength: 5 }),
      fc.integer({ min: 20, max: 200 }),
      (rows, width) => {
        const clean = rows.map((row) => row.map((cell) => cell.replaceAll(/[\p{C}\p{Z}]/gu, "x")))
        for (const line of render({ headers: ["FIRST", "SECOND"], rows: clean }, width).split("\n")) {
          assert.isAtMost([...line].length, width)
        }
      }
    )
  )
})

it("when there are too many columns for a terminal, then each row is a block, and nothing is lost", () => {
  const headers = ["PREFIX", "STATUS", "LIMITS", "EXPIRES"]
  const rows = [["tg_4fJ2kQ9sX", "active now", "60 / 100,000 / 4", "2026-12-24 23:59"]]
  assert.strictEqual(
    render({ headers, rows }, 48),
    [
      "PREFIX        STATUS      LIMITS      EXPIRES",
      "tg_4fJ2kQ9sX  active now  60 /        2026-12-24",
      "                          100,000 /   23:59",
      "                          4"
    ].join("\n")
  )
  assert.strictEqual(
    render({ headers, rows }, 30),
    [
      "PREFIX   tg_4fJ2kQ9sX",
      "STATUS   active now",
      "LIMITS   60 / 100,000 / 4",
      "EXPIRES  2026-12-24 23:59"
    ].join("\n")
  )
})

it("when the output is not a terminal, then nothing is cut", () => {
  const long = "m".repeat(500)
  assert.include(render({ headers: ["MODEL"], rows: [[long]] }, Number.POSITIVE_INFINITY), long)
})

it("when a table has times, then they are to the minute, with their offset", () => {
  const at = new Date("2026-11-21T05:10:54Z")
  const table = tableOf([at, null], { AT: (cell) => cell, ENDS: (cell) => endCell(cell, "never") })
  const { textOf } = makeCalendar("Asia/Kathmandu")
  const zoned = render(table, Number.POSITIVE_INFINITY, (date, form) => textOf(date.getTime(), form))
  assert.deepStrictEqual(
    zoned.split("\n").map((line) => line.split(/ {2,}/)),
    [
      ["AT", "ENDS"],
      ["2026-11-21 10:55 +05:45", "2026-11-21 10:55 +05:45"],
      ["-", "never"]
    ]
  )
  assert.include(render(table, Number.POSITIVE_INFINITY), "2026-11-21 05:10 UTC")
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

it("when an end is given, then it is that of a day, an instant or a time from now, in the zone, and days that do not exist are refused", () => {
  const berlin = makeCalendar("Europe/Berlin")
  // A Tuesday, 10:30 in Berlin.
  const now = Date.parse("2026-11-24T09:30:00Z")
  for (const [text, iso] of [
    ["fri", "2026-11-27T23:00:00.000Z"],
    ["Friday", "2026-11-27T23:00:00.000Z"],
    ["tue", "2026-11-24T23:00:00.000Z"],
    ["mon", "2026-11-30T23:00:00.000Z"],
    ["today", "2026-11-24T23:00:00.000Z"],
    ["tomorrow", "2026-11-25T23:00:00.000Z"],
    ["18:00", "2026-11-24T17:00:00.000Z"],
    ["10:00", "2026-11-25T09:00:00.000Z"],
    ["18:00Z", "2026-11-24T18:00:00.000Z"],
    ["3d", "2026-11-27T09:30:00.000Z"],
    ["2027-03-28", "2027-03-28T22:00:00.000Z"],
    ["2027-01-31T12:00", "2027-01-31T11:00:00.000Z"],
    ["2027-01-31T12:00:00+02:00", "2027-01-31T10:00:00.000Z"]
  ] as const) {
    const at = deadlineOf(now, Option.getOrThrow(readDeadline(text)), berlin)
    assert.strictEqual(new Date(at).toISOString(), iso, text)
  }
  for (const text of [
    "",
    "soon",
    "fr",
    "2027-02-30",
    "2027-02-30T12:00",
    "2027-13-01",
    "31.1.2027",
    "2027",
    "24:00"
  ])
    assert.isTrue(Option.isNone(readDeadline(text)), JSON.stringify(text))
  // The last that a date can say is no mistake of the program.
  for (const text of ["9999-12-31", "999999w", "9999-12-31T23:59-12:00"])
    assert.isAbove(deadlineOf(now, Option.getOrThrow(readDeadline(text)), berlin), now, text)
})

it("when a period is given, then days are whole days, a time of the clock is the latest one, and what is not over ends now", () => {
  const morning = Date.parse("2026-11-22T09:30:00Z")
  const period = (since: string, until?: string, now = morning, zone = "UTC") => {
    const read = (text: string) => Option.getOrThrow(readMoment(text))
    const bounds = { since: read(since), until: until === undefined ? undefined : read(until) }
    const found = periodOf(now, bounds, makeCalendar(zone))
    return found === undefined
      ? "none"
      : [found.from, found.to].map((at) => at.toISOString().slice(0, 16)).join(" ") +
          (found.days === undefined ? "" : " days")
  }
  for (const [since, until, expected] of [
    ["23:00", "06:00", "2026-11-21T23:00 2026-11-22T06:00"],
    ["23:00+01:00", "07:00+01:00", "2026-11-21T22:00 2026-11-22T06:00"],
    ["00:30+01:00", "now", "2026-11-21T23:30 2026-11-22T09:30"],
    ["9:30", undefined, undefined],
    ["yesterday", "yesterday", "2026-11-21T00:00 2026-11-22T00:00 days"],
    ["yesterday", undefined, "2026-11-21T00:00 2026-11-23T00:00 days"],
    ["2w", "today", "2026-11-08T00:00 2026-11-23T00:00 days"],
    ["90m", "now", "2026-11-22T08:00 2026-11-22T09:30"],
    ["2026-11-20", "2026-11-21T12:00", "2026-11-20T00:00 2026-11-21T12:00"],
    ["2026-11-21T22:00+01:00", "now", "2026-11-21T21:00 2026-11-22T09:30"],
    ["now", "yesterday", "none"],
    // Not over yet.
    ["08:00", "23:00", "2026-11-22T08:00 2026-11-22T09:30"],
    ["yesterday", "23:00", "2026-11-21T00:00 2026-11-22T09:30"],
    ["yesterday", "2026-12-31", "2026-11-21T00:00 2026-11-23T00:00 days"],
    ["08:00", "2026-11-22T23:00", "2026-11-22T08:00 2026-11-22T09:30"],
    ["2026-12-01", "2026-12-31", "none"],
    ["999999d", "now", "1970-01-01T00:00 2026-11-22T09:30"]
  ] as const)
    if (expected === undefined) assert.isTrue(Option.isNone(readMoment(since)), since)
    else assert.strictEqual(period(since, until), expected, `${since} ${until}`)
  const night = Date.parse("2026-11-22T23:10:00Z")
  assert.strictEqual(period("23:00", "06:00", night), "2026-11-21T23:00 2026-11-22T06:00")
  assert.strictEqual(period("23:00", "now", night), "2026-11-22T23:00 2026-11-22T23:10")
  // In Berlin it is half past ten. The clocks go forward on the 28th of March, 2027.
  for (const [since, until, expected] of [
    ["today", "today", "2026-11-21T23:00 2026-11-22T23:00 days"],
    ["23:00", "06:00", "2026-11-21T22:00 2026-11-22T05:00"],
    ["23:00Z", "now", "2026-11-21T23:00 2026-11-22T09:30"],
    ["2026-10-25", "2026-10-25", "2026-10-24T22:00 2026-10-25T23:00 days"],
    ["2026-11-21T22:00", "now", "2026-11-21T21:00 2026-11-22T09:30"]
  ] as const)
    assert.strictEqual(period(since, until, morning, "Europe/Berlin"), expected, `${since} ${until}`)
  for (const text of [
    "",
    "soon",
    "24:00",
    "23:60",
    "2027-02-30",
    "2027-01-31T25:00",
    "31.1.2027",
    "23:00+1",
    "1y"
  ])
    assert.isTrue(Option.isNone(readMoment(text)), JSON.stringify(text))
  const month = (text: string, now = morning) =>
    periodOf(now, Option.getOrThrow(readMonth(text)), makeCalendar("Europe/Berlin"))?.days
  assert.deepStrictEqual(month("2024-02"), { since: "2024-02-01", until: "2024-02-29" })
  assert.deepStrictEqual(month("last"), { since: "2026-10-01", until: "2026-10-31" })
  assert.deepStrictEqual(month("this"), { since: "2026-11-01", until: "2026-11-22" })
  assert.deepStrictEqual(month("2026-11"), { since: "2026-11-01", until: "2026-11-22" })
  // Already January there.
  assert.deepStrictEqual(month("last", Date.parse("2026-12-31T23:30:00Z")), {
    since: "2026-12-01",
    until: "2026-12-31"
  })
  for (const text of ["2026-13", "2026-00", "2026", "11-2026", "next"])
    assert.isTrue(Option.isNone(readMonth(text)), text)
  assert.deepStrictEqual(periodOf(morning, {}, utc)?.days, { since: "2026-11-01", until: "2026-11-22" })
})
